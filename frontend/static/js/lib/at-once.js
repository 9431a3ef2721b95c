/** A choice marked `data-submits` sends its form as soon as it changes. */

document.addEventListener("change", (event) => {
  const control = event.target;
  if ((control instanceof HTMLSelectElement || control instanceof HTMLInputElement) && control.matches("[data-submits]"))
    control.form?.requestSubmit();
});
