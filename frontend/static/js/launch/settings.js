/** Settings of the new-run form: those that do not act, the differences to the defaults, and the search among them. */

import { make, must } from "../lib/format.js";
import { agentChanges, agentsField, changeAgent } from "./agent-changes.js";
import { settingText } from "./summary.js";

/** @typedef {{path: string, values: (string | boolean)[]}} Condition */

/** @param {HTMLElement} field @returns {HTMLInputElement | HTMLSelectElement | null} */
function controlOf(field) {
  return field.querySelector('.input, input[type="checkbox"]:not([name="confirm"])');
}

/** @param {HTMLInputElement | HTMLSelectElement} control */
function textOf(control) {
  return control instanceof HTMLInputElement && control.type === "checkbox" ? String(control.checked) : control.value.trim();
}

/** @param {ParentNode} form @param {string} selector @returns {HTMLElement[]} */
function fields(form, selector) {
  return [...form.querySelectorAll(selector)].map((one) => /** @type {HTMLElement} */ (one));
}

/** @param {HTMLElement} field */
function labelOf(field) {
  return field.querySelector(":scope > summary, label")?.textContent?.trim() ?? field.dataset.field ?? "";
}

/** With its section, where settings of two sections have one label. @param {HTMLElement} field @param {string[]} labels of all */
function fullLabel(field, labels) {
  const label = labelOf(field);
  return labels.filter((one) => one === label).length > 1 ? `${field.dataset.section}: ${label}` : label;
}

/**
 * A setting that other settings make void is inactive, and says why. A setting that no chosen algorithm has is hidden;
 * conditions on it hold.
 * @param {HTMLFormElement} form
 */
export function showVoid(form) {
  for (const field of fields(form, "[data-needs]")) {
    /** @type {Condition[][]} */
    const needs = JSON.parse(field.dataset.needs ?? "[]");
    const broken = needs.find((alternatives) => !alternatives.some((one) => holds(form, one)));
    const why = broken ? reason(form, broken[0]) : "";
    field.classList.toggle("field-idle", why !== "");
    for (const control of field.querySelectorAll("input, select")) control.toggleAttribute("disabled", why !== "");
    const line = /** @type {HTMLElement} */ (field.querySelector("[data-void]"));
    line.hidden = why === "";
    line.textContent = why;
  }
}

/** @param {HTMLFormElement} form @param {Condition} condition */
function holds(form, { path, values }) {
  const field = /** @type {HTMLElement | null} */ (form.querySelector(`[data-field="${path}"]`));
  const control = field && controlOf(field);
  if (!field || !control || field.hidden) return true;
  if (values.length) return values.map(String).includes(textOf(control));
  /** @type {NodeListOf<HTMLInputElement>} */
  const inputs = field.querySelectorAll("input.input"); // several, of the weights of training sets
  return (inputs.length ? [...inputs] : [control]).some((one) => Number(textOf(one)) > 0);
}

/** @param {HTMLFormElement} form @param {Condition} condition */
function reason(form, { path }) {
  const field = /** @type {HTMLElement} */ (form.querySelector(`[data-field="${path}"]`));
  const control = controlOf(field);
  const text = control ? textOf(control) : "";
  const value = { true: "on", false: "off", "": "none" }[text] ?? text;
  return `No effect with ${labelOf(field)}: ${value}.`;
}

/**
 * @param {HTMLFormElement} form
 * @param {() => void} refresh
 */
export function showDifferences(form, refresh) {
  const all = fields(form, "[data-start]").filter((field) => !/^(grid|search)\./.test(field.dataset.field ?? ""));
  const labels = all.map(labelOf);
  const lines = all
    .filter((field) => !field.hidden && !field.classList.contains("field-idle"))
    .flatMap((field) => {
      const control = controlOf(field);
      const standard = field.dataset.start ?? "";
      return control && !isSame(textOf(control), standard) ? [difference(fullLabel(field, labels), control, standard, refresh)] : [];
    });
  for (const [agent, settings] of agentChanges(agentsField().value)) lines.push(...Object.keys(settings).map((name) => agentDifference(agent, name, settings[name])));
  const box = must("#differences");
  box.hidden = false;
  must("#no-differences").hidden = lines.length > 0;
  must("#differences ul").replaceChildren(...lines);
}

/** @param {string} text @param {string} other one number written in two ways is the same */
function isSame(text, other) {
  return text === other || (text !== "" && other !== "" && Number(text) === Number(other));
}

/**
 * @param {string} label
 * @param {HTMLInputElement | HTMLSelectElement} control
 * @param {string} standard
 * @param {() => void} refresh
 */
function difference(label, control, standard, refresh) {
  const line = make("li");
  const words = make("span");
  const before = spoken(control, standard);
  const word = must("#differences").dataset.cloned === undefined ? "default" : "was";
  words.append(make("strong", "", label), ` ${spoken(control, textOf(control))} `, make("span", "quiet", `(${word} ${before})`));
  const button = make("button", "button button-small", "Reset");
  button.type = "button";
  button.setAttribute("aria-label", `Reset ${label} to ${before}`);
  button.addEventListener("click", () => {
    if (control instanceof HTMLInputElement && control.type === "checkbox") control.checked = standard === "true";
    else control.value = standard;
    control.dispatchEvent(new Event("input", { bubbles: true }));
    refresh();
    must("#differences").querySelector("button")?.focus();
  });
  line.append(words, button);
  return line;
}

/** A setting of one agent in this run. @param {string} agent @param {string} name @param {unknown} value */
function agentDifference(agent, name, value) {
  const line = make("li");
  const words = make("span");
  words.append(make("strong", "", `${agent}: ${name}`), ` ${settingText(value)}`);
  const button = make("button", "button button-small", "Reset");
  button.type = "button";
  button.setAttribute("aria-label", `Reset ${name} of ${agent} to what the group has`);
  button.addEventListener("click", () => {
    changeAgent(agent, { [name]: undefined });
    must("#differences").querySelector("button")?.focus();
  });
  line.append(words, button);
  return line;
}

/** A value in words; of a group or a benchmark, its name. @param {HTMLInputElement | HTMLSelectElement} control @param {string} value */
function spoken(control, value) {
  const option = control instanceof HTMLSelectElement ? [...control.options].find((one) => one.value === value) : undefined;
  return option?.dataset.name ?? option?.text.trim() ?? (value || "empty");
}

/** The search box under "More": by label, name and description, also among the settings above it. */
export function offerSearch() {
  const box = must("#settings-search");
  box.hidden = false;
  const search = /** @type {HTMLInputElement} */ (must("#id-settings-search"));
  search.addEventListener("input", () => filter(search.value.trim().toLowerCase()));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // it would queue the run
  });
}

/** @param {string} words */
function filter(words) {
  let count = 0;
  for (const section of fields(must("#step-how"), ".how-fields, [data-settings-section]")) {
    let matches = 0;
    for (const field of fields(section, "[data-field]")) {
      const text = `${field.dataset.field} ${field.textContent}`.toLowerCase();
      const isMatch = words.split(/\s+/).every((word) => text.includes(word));
      field.classList.toggle("filtered-out", !isMatch);
      if (isMatch && !field.hidden) matches += 1;
    }
    section.hidden = matches === 0;
    count += matches;
  }
  must("#settings-count").textContent = words ? `${count} ${count === 1 ? "setting" : "settings"}` : "";
}
