/** The mapping form: shows the first prompt, with its mathematics drawn, for the selected columns. */

import { must, readJson } from "../lib/format.js";
import { drawn } from "../lib/maths.js";
import { letFocus } from "../lib/scroller.js";

const form = /** @type {HTMLFormElement} */ (must("#mapping"));
/** @type {Record<string, string>[]} */
const rows = readJson("first-rows");

/** @param {string} name */
function value(name) {
  const control = form.elements.namedItem(name);
  return control instanceof HTMLSelectElement || control instanceof HTMLTextAreaElement ? control.value : "";
}

/**
 * The answer in its cell, as the server will extract it; only the server finds the content of the last box.
 * @param {string} cell
 */
function answer(cell) {
  if (value("answer_extraction") === "hashes") return cell.includes("####") ? cell.slice(cell.lastIndexOf("####") + 4).trim() : "";
  if (value("answer_extraction") === "boxed") return cell.slice(Math.max(0, cell.lastIndexOf("\\boxed")));
  return cell;
}

/** Fields that act with some verifiers only. */
const VERIFIERS_OF = { extraction: ["math", "numeric"], tolerance: ["numeric"], reward_function: ["function"], judge: ["judge"] };

function show() {
  for (const [name, verifiers] of Object.entries(VERIFIERS_OF)) {
    const field = form.querySelector(`[data-of="${name}"]`);
    if (field instanceof HTMLElement) field.hidden = !verifiers.includes(value("verifier")) && !field.classList.contains("field-invalid");
  }
  const row = rows[0] ?? {};
  const question = row[value("question_field")] ?? "";
  const system = value("system_prompt").trim();
  const prompt = (system && `${system}\n\n`) + value("prompt_template").replaceAll("{question}", () => question);
  must("#preview").hidden = false;
  must('[data-preview="prompt"]').textContent = prompt;
  const drawing = drawn(prompt);
  must('[data-preview="maths"]').replaceChildren(...(drawing.querySelector(".formula, .formula-display") ? [drawing] : []));
  letFocus(drawing);
  must('[data-preview="answer"]').textContent = answer(row[value("answer_field")] ?? "") || "none";
}

/** @type {Record<string, Record<"prompt_template" | "system_prompt", string>>} */
const readyPrompts = readJson("ready-prompts");
const TEXTS = /** @type {const} */ (["prompt_template", "system_prompt"]);

const ready = /** @type {HTMLSelectElement} */ (form.elements.namedItem("ready_prompt"));

/** The two texts of the chosen ready prompt. */
function fillInPrompt() {
  for (const name of TEXTS) {
    if (ready.value) /** @type {HTMLTextAreaElement} */ (form.elements.namedItem(name)).value = readyPrompts[ready.value][name];
  }
}

ready.addEventListener("input", fillInPrompt);
form.addEventListener("input", ({ target }) => {
  if (target instanceof HTMLTextAreaElement) ready.value = ""; // now it is the user's own text
});
fillInPrompt(); // the choice may have been made before this script had loaded
form.addEventListener("input", show);
show();
