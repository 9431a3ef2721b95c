// The agent group form: shows two agents, and one more for each click. Without this script all eight are shown.

const SHOWN_AT_FIRST = 2;

const form = document.querySelector("[data-group-form]");
if (form) {
  const rows = [...form.querySelectorAll("[data-agent-row]")];
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("[data-add-agent]"));
  const lastUsed = rows.findLastIndex((row) => row.hasAttribute("data-used"));
  let shown = Math.max(SHOWN_AT_FIRST, lastUsed + 1);

  const draw = () => {
    rows.forEach((row, position) => row.toggleAttribute("hidden", position >= shown));
    button.hidden = shown >= rows.length;
  };
  button.addEventListener("click", () => {
    shown += 1;
    draw();
    rows[shown - 1].querySelector("select")?.focus();
  });
  draw();
}
