// The agent group form: shows two agents, and one more for each click; the thinking switch of models that have one.
// Without this script all is shown.

import { readJson } from "../lib/format.js";

const SHOWN_AT_FIRST = 2;

/**
 * Shows the thinking switch if the chosen model has one.
 * @param {Element} row
 * @param {string[]} models ids of those that have
 */
function showThinking(row, models) {
  const model = /** @type {HTMLSelectElement} */ (row.querySelector('select[name$="-model"]'));
  const thinking = /** @type {HTMLSelectElement} */ (row.querySelector('select[name$="-thinking"]'));
  const isKnown = models.includes(model.value);
  thinking.closest(".field")?.toggleAttribute("hidden", !isKnown);
  if (!isKnown) thinking.value = "";
}

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
  const models = /** @type {string[]} */ (readJson("thinking-models"));
  for (const row of rows) {
    if (!row.querySelector('.field-invalid select[name$="-thinking"]')) showThinking(row, models);
    row.addEventListener("change", () => showThinking(row, models));
  }
}
