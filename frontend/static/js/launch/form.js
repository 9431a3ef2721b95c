/** The new-run form: presets, the chosen group's agents, the cost of a step. cost.js shows the rest of the cost. */

import { count, learningRate, make, must, readJson } from "../lib/format.js";
import { agentChanges, agentsField, editAgent, showAgent, withSettings } from "./agent-changes.js";
import { offerCommand } from "./command.js";
import { requestCost } from "./cost.js";
import { settingsOf } from "./fixes.js";
import { offerSearch, showDifferences, showVoid } from "./settings.js";
import { pressTile, showTiles } from "./presets.js";
import { settingText, summary } from "./summary.js";

/**
 * @typedef {{name: string, model: string, position: number, context: number | null, refuses_system: boolean,
 *   lora_rank: number, learning_rate: number | null}} GroupAgent
 * @typedef {{id: number, name: string, agents: GroupAgent[]}} Group
 * @typedef {{name: string, label: string, summary: string, shares: boolean, rollouts: number, settings: string[]}} Algorithm
 * @typedef {{name: string, label: string, values: Record<string, string | number | boolean>,
 *   confirm: {field: string, value: string, text: string}[]}} Preset
 */

const LENGTHS = ["rollout.max_prompt_length", "rollout.max_completion_length"];
const form = /** @type {HTMLFormElement} */ (must("#run-form"));
/** @type {{groups: Group[], presets: Preset[], algorithms: Algorithm[], ablations: Record<string, string>}} */
const data = readJson("form-data");

/**
 * @param {string} name
 * @returns {HTMLInputElement | HTMLSelectElement | null} the control itself, not the hidden "false" of a checkbox
 */
function control(name) {
  const first = form.querySelector(`[name="${name}"]:not([type="hidden"])`);
  return first instanceof HTMLInputElement || first instanceof HTMLSelectElement ? first : null;
}

/** @param {string} name */
function number(name) {
  const text = control(name)?.value ?? "";
  return text.trim() === "" ? NaN : Number(text);
}

/** @param {string} name */
function isOn(name) {
  const box = control(name);
  return !(box instanceof HTMLInputElement) || box.type !== "checkbox" || box.checked;
}

/** @returns {string} "one", "grid" or "search" */
function mode() {
  return /** @type {HTMLElement | null} */ (form.querySelector('[name="compare"]:checked'))?.dataset.mode ?? "one";
}

/** @param {string} name @returns {string[]} values of the ticked boxes */
function ticked(name) {
  return [...form.querySelectorAll(`[name="${name}"]:checked`)].map((box) => /** @type {HTMLInputElement} */ (box).value);
}

/** @returns {Algorithm[]} those of the chosen runs; an ablation is of one algorithm */
function algorithms() {
  const names = mode() === "grid" ? [...ticked("algorithms"), ...ticked("ablations").map((key) => data.ablations[key])] : [control("algorithm.name")?.value];
  return data.algorithms.filter((one) => names.includes(one.name));
}

/** Says what the chosen algorithm does, and hides the settings that no chosen one has. */
function showSettings() {
  const chosen = algorithms();
  const names = chosen.map((one) => one.name);
  if (chosen.length === 1) must("#id-algorithm-name-help").textContent = `${chosen[0].name}: ${chosen[0].summary}.`;
  for (const field of form.querySelectorAll("[data-algorithms]")) {
    const own = (/** @type {HTMLElement} */ (field).dataset.algorithms ?? "").split(" ");
    /** @type {HTMLElement} */ (field).hidden = names.length > 0 && !own.some((name) => names.includes(name));
  }
  showVoid(form);
}

/** @returns {Group | undefined} */
function group() {
  return data.groups.find((one) => String(one.id) === control("group")?.value);
}

function showAgents() {
  const changes = agentChanges(agentsField().value);
  const chips = (group()?.agents ?? []).map((agent) => {
    const chip = make("span", "chip");
    chip.dataset.agent = String(agent.position % 8);
    chip.title = `${agent.name}: ${agent.model}`;
    chip.append(make("span", "", agent.name === agent.model ? agent.name : `${agent.name} (${agent.model})`));
    const changed = Object.entries(changes.get(agent.name) ?? {}).map(([name, value]) => `${name} ${settingText(value)}`);
    const own = [agent.lora_rank ? `LoRA ${agent.lora_rank}` : "", agent.learning_rate === null ? "" : `learning rate ${learningRate(agent.learning_rate)}`, ...changed];
    if (own.some(Boolean)) chip.append(make("span", "quiet small", own.filter(Boolean).join(", ")));
    const pencil = make("button", "chip-button", "✎");
    pencil.type = "button";
    pencil.setAttribute("aria-label", `Override settings of ${agent.name}`);
    pencil.addEventListener("click", () => editAgent(agent.name));
    chip.append(pencil);
    return chip;
  });
  const names = (group()?.agents ?? []).map((agent) => agent.name);
  const box = must("#group-agents");
  const focused = [...box.querySelectorAll("button")].indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
  box.replaceChildren(...chips);
  if (focused >= 0) box.querySelectorAll("button")[focused]?.focus();
  showAgent(names);
  const judged = /** @type {HTMLSelectElement} */ (control("search.agent"));
  for (const option of judged.options) option.hidden = option.value !== "" && names.length > 0 && !names.includes(option.value);
}

/**
 * @param {string} name
 * @param {string} text
 */
function show(name, text) {
  must(`[data-show="${name}"]`).textContent = text;
}

function showStep() {
  const agents = group()?.agents.length ?? 0;
  const prompts = number("training.train_batch_size");
  const generations = number("rollout.num_generations");
  const chosen = algorithms();
  const extra = number("rollout.max_extra_prompts") || 0;
  const perStep = agents * (prompts + extra) * generations;
  const factor = chosen.length === 1 ? chosen[0].rollouts : 1;
  show("per-step", agents ? `${extra ? "at most " : ""}${count(perStep * factor)}` : "–");
  show("formula", agents ? `${agents} agents × ${extra ? `(${count(prompts)} + ${count(extra)} extra)` : count(prompts)} prompts × ${count(generations * factor)} rollouts` : "agents × prompts × rollouts");
  showWarnings(chosen, agents);
  showSettings();
}

/**
 * Settings that the server accepts but that may be mistakes.
 * @param {Algorithm[]} chosen
 * @param {number} agents
 */
function showWarnings(chosen, agents) {
  const warnings = [];
  const delta = mode() !== "one" && control("grid.delta")?.value.trim() ? NaN : number("algorithm.delta");
  const shares = chosen.some((one) => one.shares) && isOn("algorithm.sharing");
  const hasClip = chosen.some((one) => one.settings.includes("clip_cross")) && control("algorithm.cross_gate")?.value === "hacpo";
  const clips = shares && hasClip && isOn("algorithm.clip_cross") && agents !== 1;
  if (shares && agents === 1) warnings.push("One agent alone has no peer to share with: it then learns as by GSPO.");
  const limits = ["top_p", "top_k"].filter((name) => number(`rollout.${name}`) > 0 && number(`rollout.${name}`) !== (name === "top_p" ? 1 : 0));
  if (limits.length) warnings.push(`rollout.${limits.join(" and rollout.")}: importance ratios assume samples of the whole distribution, so updates are biased. For evaluations alone there are evaluation.top_p and top_k.`);
  warnings.push(...systemWarnings());
  const list = must("#warnings");
  const asks = clips && delta > 0.5 && delta <= 1 && !isConfirmed("algorithm.delta");
  list.replaceChildren(...contextWarning(), ...(asks ? deltaWarning(delta) : []), ...warnings.map((text) => make("p", "", text)), ...logHints());
  list.hidden = list.childElementCount === 0;
}

/** @param {number} delta that is asked about when the run is queued */
function deltaWarning(delta) {
  const text = `delta_above_half=${delta}`;
  const confirm = () => {
    showConfirmation({ field: "algorithm.delta", text }, `${delta} is confirmed.`);
    refresh();
  };
  return [make("p", "", `Delta ${delta}: the lower bound becomes ${Number((1 - delta).toPrecision(3))}.`), fixButton(`Use ${delta} anyway`, confirm)];
}

/** Agents whose chat template takes no system message, on a benchmark that has one. */
function systemWarnings() {
  const benchmark = control("benchmark");
  if (!(benchmark instanceof HTMLSelectElement) || benchmark.selectedOptions[0]?.dataset.hasSystem === undefined) return [];
  const agents = (group()?.agents ?? []).filter((agent) => agent.refuses_system);
  return agents.map(({ name }) => `The chat template of ${name} takes no system message: it reads the benchmark's system prompt before the question.`);
}

/** Offers a preset that fits the group: the defaults are for models of thousands of tokens. */
function contextWarning() {
  const agents = group()?.agents ?? [];
  const context = Math.min(...agents.map((agent) => agent.context || Infinity));
  const length = LENGTHS.reduce((sum, name) => sum + number(name), 0);
  if (!(length > context)) return [];
  const shortest = agents.find((agent) => agent.context === context)?.name;
  const lines = /** @type {HTMLElement[]} */ ([make("p", "", `The longest prompt and the longest completion are ${count(length)} tokens together; ${shortest} has room for ${count(context)}.`)]);
  const preset = data.presets.find(({ values }) => LENGTHS.reduce((sum, name) => sum + Number(values[name]), 0) <= context);
  if (preset) lines.push(fixButton(`Use the preset “${preset.label}”`, () => choosePreset(preset.name)));
  return lines;
}

/** Ranges of a search over two decades that are drawn evenly: nearly all values would be of the last decade. */
function logHints() {
  if (mode() !== "search") return [];
  const fields = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll('[name^="grid."]')]);
  return fields.flatMap((field) => {
    const [low, high] = field.value.trim().split("..").map(Number);
    if (!(low > 0 && high / low >= 100)) return []; // with `log` behind it the number is none
    const line = make("p", "", `${field.value.trim()} spans ${Math.round(Math.log10(high / low))} decades, and an even draw leaves the lower ones nearly empty. `);
    const use = () => {
      field.value = `${field.value.trim()} log`;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    };
    line.append(fixButton(`Use ${field.value.trim()} log`, use));
    return [line];
  });
}

/** @param {string} label @param {() => void} act */
function fixButton(label, act) {
  const button = make("button", "button button-small", label);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

/** @param {string} name */
function choosePreset(name) {
  applyPreset(data.presets.find((one) => one.name === name));
  const select = /** @type {HTMLSelectElement} */ (control("preset"));
  select.value = name;
  if (select.selectedIndex < 0) select.value = "";
  pressTile(name);
  refresh();
}

/** @param {Pick<Preset, "values" | "confirm"> | null | undefined} preset */
function applyPreset(preset) {
  if (!preset) return;
  for (const [name, value] of Object.entries(preset.values)) {
    const target = control(name);
    if (target instanceof HTMLInputElement && target.type === "checkbox") target.checked = Boolean(value);
    else if (target) target.value = typeof value === "number" && value && Math.abs(value) < 0.001 ? value.toExponential() : String(value);
    if (target) dropStaleConfirmations(target);
  }
  for (const one of preset.confirm) showConfirmation(one, `${one.value} is unusual; this preset needs it.`);
}

/** @param {import("./fixes.js").Fix} fix */
function applyFix(fix) {
  applyPreset({ values: settingsOf(fix), confirm: [] });
  const field = agentsField();
  for (const [agent, own] of Object.entries(fix.request.agents ?? {})) field.value = withSettings(field.value, agent, /** @type {import("./fixes.js").Settings} */ (own));
  refresh();
}

/**
 * Beside a value that is confirmed: that it is meant.
 * @param {{field: string, text: string}} one
 * @param {string} words
 */
function showConfirmation({ field, text }, words) {
  const place = form.querySelector(`[data-field="${field}"]`);
  if (!place || place.querySelector(`[name="confirm"][value="${text}"]`)) return;
  const consent = make("input");
  Object.assign(consent, { type: "hidden", name: "confirm", value: text });
  const line = make("p", "small caution");
  line.append(consent, words);
  place.insertBefore(line, place.querySelector(".field-help"));
}

/**
 * Another value needs another confirmation.
 * @param {HTMLInputElement | HTMLSelectElement} target
 */
function dropStaleConfirmations(target) {
  for (const box of target.closest("[data-field]")?.querySelectorAll('[name="confirm"]') ?? []) {
    const meant = /** @type {HTMLInputElement} */ (box).value.split("=")[1] ?? "";
    if (numbers(meant) !== numbers(target.value)) box.closest(".caution")?.remove();
  }
}

/** @param {string} text one number, or those of a grid: written otherwise they are the same */
function numbers(text) {
  return text.split(/[\s,]+/).filter(Boolean).map(Number).join();
}

/** @param {string} field */
function isConfirmed(field) {
  return form.querySelector(`[data-field="${field}"] [name="confirm"]:is(:checked, [type="hidden"])`) !== null;
}

function refresh() {
  showAgents();
  showTiles(control("group")?.value ?? "", control("benchmark")?.value ?? "", (best) => {
    applyPreset(best);
    refresh();
  });
  showStep();
  showDifferences(form, refresh);
  const benchmark = /** @type {HTMLSelectElement} */ (control("benchmark")).selectedOptions[0]?.dataset ?? {};
  const own = varied();
  const labels = [...new Set(algorithms().map((one) => one.label))];
  must("#run-summary").textContent = summary({
    group: group(),
    benchmark: benchmark.name ?? "",
    changes: agentChanges(agentsField().value),
    algorithms: labels,
    variants: ticked("ablations").length,
    seeds: seeds().length,
    trials: mode() === "search" ? number("search.trials") : 0,
    compares: mode() !== "one",
    value: (name) => own.get(name) ?? control(name)?.value ?? "",
  });
  line("who", (group()?.agents ?? []).map((agent) => agent.name).join(" + ") || "Choose a group");
  line("on", benchmark.name ? `${benchmark.name}, ${benchmark.sizes}` : "Choose a benchmark");
  line("how", [mode() === "grid" ? "" : labels[0], `${count(number("training.steps"))} steps`, `${count(number("training.train_batch_size"))} × ${count(number("rollout.num_generations"))}`].filter(Boolean).join(", "));
  line("compare", mode() === "grid" ? `${labels.join(", ")} on seeds ${seeds().join(", ")}` : [...own].map(([name, text]) => `${name.split(".").at(-1)} ${text}`).join(", "));
  for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll('[name="evaluation.benchmarks"]'))) {
    box.disabled = box.value === control("benchmark")?.value; // every run is evaluated on its own benchmark
    /** @type {HTMLElement} */ (box.closest(".choice")).hidden = box.disabled;
  }
  requestCost(form, group() !== undefined && (control("benchmark")?.value ?? "") !== "");
}

/** @param {string} name @param {string} text of a closed card */
function line(name, text) {
  must(`[data-line="${name}"]`).textContent = text;
}

function seeds() {
  return (control("seeds")?.value ?? "").split(/[\s,]+/).filter(Boolean);
}

/** @returns {Map<string, string>} the values or the range of each setting that the runs vary, by its dotted path */
function varied() {
  if (mode() === "one") return new Map();
  const lines = (/** @type {HTMLTextAreaElement} */ (must("#id-varied"))).value.split("\n").filter((text) => text.includes("=")).map((text) => text.split("=", 2));
  const fields = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll('[name^="grid."]')]).map((field) => [field.name.replace("grid.", ""), field.value]);
  const pairs = [...fields, ...lines].map(([name, text]) => [name.trim().replace("agents.*.", "training."), text.trim()]);
  return new Map(pairs.filter(([, text]) => text).map(([name, text]) => [name.includes(".") ? name : `algorithm.${name}`, text]));
}

form.addEventListener("input", (event) => {
  const target = event.target;
  if (target instanceof HTMLInputElement && target.type === "search") return; // it filters settings and sets none
  if (target instanceof HTMLSelectElement && ["group", "benchmark"].includes(target.name)) must("#prompts").replaceChildren();
  if (target instanceof HTMLInputElement && target.dataset.agentSetting) return; // its line in the field is sent
  if (target instanceof HTMLSelectElement && target.name === "preset") {
    if (target.value !== "") choosePreset(target.value);
    return;
  }
  pressTile("");
  if ((target instanceof HTMLInputElement || target instanceof HTMLSelectElement) && target.name !== "confirm") {
    dropStaleConfirmations(target);
  }
  refresh();
});
const once = [must("#submit"), must("#save")];
// Two presses must not queue or save two runs; a download leaves the page as it is.
form.addEventListener("submit", (event) => {
  if (event.submitter?.id === "download") return;
  for (const button of once) button.setAttribute("aria-disabled", "true");
  setTimeout(() => once.forEach((button) => button.setAttribute("disabled", "")), 0); // the pressed one is still sent
});
form.addEventListener("fix", (event) => event instanceof CustomEvent && applyFix(event.detail));
offerCommand(form);
offerSearch();
must("#tiles").addEventListener("click", (event) => {
  const tile = /** @type {HTMLElement} */ (event.target).closest("button");
  if (tile) choosePreset(tile.dataset.preset ?? "");
});
addEventListener("pageshow", () => {
  for (const button of once) {
    button.removeAttribute("disabled");
    button.removeAttribute("aria-disabled");
  }
  refresh();
});
// An error or question far down a long form is brought into view.
form.querySelector(".field-invalid, .alert.caution")?.scrollIntoView({ block: "center" });
