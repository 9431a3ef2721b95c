/** Buttons with `data-copy`: they copy the text of the element with that id, or select it where a browser refuses. */

for (const button of document.querySelectorAll("button[data-copy]")) {
  if (!(button instanceof HTMLButtonElement)) continue;
  const source = document.getElementById(button.dataset.copy ?? "");
  if (!source) continue;
  button.hidden = false; // without this script it would do nothing
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent?.trim() ?? "");
      button.textContent = "Copied";
    } catch {
      getSelection()?.selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C";
    }
  });
}
