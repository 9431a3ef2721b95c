/** The new-run form in one sentence. */

import { count, learningRate } from "../lib/format.js";

/** @typedef {Map<string, import("./agent-changes.js").Settings>} Changes settings of single agents in this run */

/**
 * @typedef {{name: string, agents: {name: string, lora_rank: number, learning_rate: number | null}[]}} Group
 * @param {{group: Group | undefined, benchmark: string, changes: Changes, algorithms: string[], variants: number,
 *   seeds: number, trials: number, compares: boolean, value: (name: string) => string}} form
 */
export function summary({ group, benchmark, changes, algorithms, variants, seeds, trials, compares, value }) {
  if (!group || !benchmark) return `Choose ${[group ? "" : "an agent group", benchmark ? "" : "a benchmark"].filter(Boolean).join(" and ")}.`;
  const names = group.agents.map((agent) => agent.name);
  const agents = listed(names);
  const steps = Number(value("training.steps"));
  if (steps === 0) return `${agents} ${names.length === 1 ? "is" : "are"} evaluated on “${benchmark}”; nothing is trained.`;
  const verb = names.length === 1 ? "learns" : "learn";
  const alone = `with ${algorithms[0] ?? "an algorithm"}`;
  const method = trials ? `${alone} in a search of ${counted(String(trials), "trial")}` : compares ? sweep(algorithms, variants, seeds) : alone;
  const extra = Number(value("rollout.max_extra_prompts"));
  const more = extra ? ` (at most ${extra} more in place of those without a signal)` : "";
  const batch = `${counted(value("training.train_batch_size"), "prompt")}${more} × ${counted(value("rollout.num_generations"), "rollout")} for each agent`;
  return `${agents} ${verb} “${benchmark}” ${method}: ${counted(value("training.steps"), "step")} of ${batch}, ${weights(group, changes, value)}, ${evaluations(value)}.${own(names, changes)}`;
}

/** @param {string[]} algorithms @param {number} variants @param {number} seeds */
function sweep(algorithms, variants, seeds) {
  const own = variants ? [`${variants} ${variants === 1 ? "ablation" : "ablations"}`] : [];
  const labels = [...new Set(algorithms)];
  return `in a sweep of ${[...labels, ...own].join(", ")} over ${counted(String(seeds), "seed")}`;
}

/** What single agents have of their own in this run. @param {string[]} names @param {Changes} changes */
function own(names, changes) {
  const parts = names.flatMap((name) => {
    const settings = Object.entries(changes.get(name) ?? {});
    return settings.length ? [`${name} with ${listed(settings.map(([setting, value]) => `${setting} ${settingText(value)}`))}`] : [];
  });
  return parts.length ? ` In this run: ${parts.join("; ")}.` : "";
}

/** @param {unknown} value as the agent's line has it */
export function settingText(value) {
  if (value === null || value === "") return "as the run has it";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** @param {Group} group @param {Changes} changes @param {(name: string) => string} value */
function weights(group, changes, value) {
  const agents = group.agents.map((agent) => ({ ...agent, .../** @type {Partial<typeof agent>} */ (changes.get(agent.name)) }));
  const rank = Number(value("training.lora_rank"));
  const ranks = new Set(agents.map((agent) => Number(agent.lora_rank) || rank));
  const [first] = ranks;
  const what = ranks.size > 1 ? "some agents with LoRA" : first ? `LoRA of rank ${first}` : "all weights";
  const rates = [...new Set(agents.map((agent) => rate((agent.learning_rate ?? "") === "" ? value("training.learning_rate") : String(agent.learning_rate))))];
  return `${what} at learning rate${rates.length > 1 ? "s" : ""} ${listed(rates)}`;
}

/** @param {string[]} names */
function listed(names) {
  return names.length === 1 ? names[0] : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

/** @param {string} text */
function rate(text) {
  const number = Number(text);
  return Number.isNaN(number) ? text : text.trim() && Number.isFinite(number) ? learningRate(number) : "?"; // a range is a text
}

/** @param {(name: string) => string} value */
function evaluations(value) {
  const every = Number(value("evaluation.eval_interval"));
  return every > 0 ? `evaluated every ${every === 1 ? "step" : `${count(every)} steps`}` : "evaluated before the first and after the last step";
}

/** @param {string} text @param {string} noun */
function counted(text, noun) {
  const number = Number(text);
  if (Number.isNaN(number)) return `${text.trim()} ${noun}s`; // values or a range that the runs vary
  return text.trim() === "" ? `? ${noun}s` : `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
