/** Buttons that copy the text of a field; where the browser forbids it, the text is selected. */

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!(button instanceof HTMLElement)) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const field = document.querySelector(button.dataset.copy ?? "");
    const said = button.parentElement?.querySelector("[data-copy-said]");
    if (!(field instanceof HTMLInputElement) || !said) return;
    try {
      await navigator.clipboard.writeText(field.value);
      said.textContent = "Copied.";
    } catch {
      field.focus();
      field.select();
      said.textContent = "Selected: copy it with Ctrl+C (Cmd+C).";
    }
  });
}
