/** The mapping form: the first prompt with its mathematics drawn, for the selected columns, or why they cannot be. */

import { must, readJson } from "../lib/format.js";
import { drawn } from "../lib/maths.js";
import { letFocus } from "../lib/scroller.js";

const form = /** @type {HTMLFormElement} */ (must("#mapping"));
const preview = must("#preview");
const WAIT_MS = 250;
let question = "";
let asked = 0;

/** @param {string} name */
function value(name) {
  const control = form.elements.namedItem(name);
  return control instanceof HTMLSelectElement || control instanceof HTMLTextAreaElement ? control.value : "";
}

/**
 * The server reads the first rows with the chosen columns.
 * @param {number} number of this request: an answer that a later one has overtaken is not shown
 */
async function readRows(number) {
  const body = new FormData(form);
  const answer = await fetch(preview.dataset.url ?? "", { method: "POST", body }).catch(() => null);
  const found = /** @type {Preview} */ (await answer?.json().catch(() => null)) ?? {};
  if (number !== asked || !answer) return;
  const errors = found.errors ?? (answer.ok ? [] : [{ field: null, message: "The files are no longer here: they are kept for an hour." }]);
  preview.dataset.state = errors.length ? "refused" : "read";
  question = found.question ?? "";
  must('[data-preview="answer"]').textContent = found.answer || "none";
  const odd = found.num_odd ? [`${found.num_odd} of the first ${found.num_rows} rows would be left out: ${found.odd?.[0]}`] : [];
  const notes = [...odd, ...(found.notes ?? [])].map((text) => box("alert alert-warning", text));
  must('[data-preview="said"]').replaceChildren(...errors.map((error) => box("alert alert-error", error.message)), ...notes);
  for (const name of COLUMNS) {
    const isWrong = errors.some((error) => error.field === name);
    const control = /** @type {HTMLElement} */ (form.elements.namedItem(name));
    control.closest(".field")?.classList.toggle("field-invalid", isWrong);
    control.toggleAttribute("aria-invalid", isWrong);
  }
  show();
}

/**
 * @param {string} name of its class
 * @param {string} text
 */
function box(name, text) {
  const made = document.createElement("div");
  made.className = name;
  const inner = document.createElement("bdi");
  inner.textContent = text;
  made.append(inner);
  return made;
}

function readSoon() {
  const number = ++asked;
  setTimeout(() => number === asked && readRows(number), WAIT_MS);
}

/** @typedef {{question?: string, answer?: string, num_odd?: number, num_rows?: number, odd?: string[], notes?: string[],
 *   errors?: {field: string | null, message: string}[]}} Preview */
const COLUMNS = ["question_field", "answer_field", "answer_extraction", "subject_field", "difficulty_field", "id_field"];

/** Fields that act with some verifiers only. */
const VERIFIERS_OF = { extraction: ["math", "numeric"], tolerance: ["numeric"], reward_function: ["function"], judge: ["judge"] };

function show() {
  for (const [name, verifiers] of Object.entries(VERIFIERS_OF)) {
    const field = form.querySelector(`[data-of="${name}"]`);
    if (field instanceof HTMLElement) field.hidden = !verifiers.includes(value("verifier")) && !field.classList.contains("field-invalid");
  }
  const system = value("system_prompt").trim();
  const prompt = (system && `${system}\n\n`) + value("prompt_template").replaceAll("{question}", () => question);
  preview.hidden = false;
  must('[data-preview="prompt"]').textContent = question && prompt;
  const drawing = drawn(question && prompt);
  must('[data-preview="maths"]').replaceChildren(...(drawing.querySelector(".formula, .formula-display") ? [drawing] : []));
  letFocus(drawing);
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
form.addEventListener("input", ({ target }) => {
  if (target instanceof HTMLSelectElement && COLUMNS.includes(target.name)) readSoon();
});
show();
readRows(++asked);
