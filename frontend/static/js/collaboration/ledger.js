/** The ledger: the outcome of each rollout with each learner, in counts or tokens; and rescued and avoided prompts. */

import { count, cut, make } from "../lib/format.js";
import { share } from "./picture.js";

/** @typedef {import("./picture.js").PairSums} PairSums */
/** @typedef {import("./picture.js").SumsView} SumsView */

/** Column titles, what each counts, and the name of its piece of the bar. */
const OUTCOMES = /** @type {[string, string, string][]} */ ([
  ["used", "taught", "The gradient is not zero."],
  ["clipped", "clipped", "It has an advantage, and the clip removed its gradient."],
  ["zero", "no advantage", "A is 0: all rewards of the prompt are equal, or the reward equals the baseline."],
  ["dropped", "dropped", "Left out of the learner's loss: overflow, empty, quarantined, or an update that was skipped or rolled back."],
  ["other", "other", "Its ratio is at max_log_ratio, or a number is not finite."],
]);

/**
 * @param {PairSums} pair
 * @param {string} outcome
 * @param {0 | 1} unit 0: rollouts, 1: tokens
 */
function amount(pair, outcome, unit) {
  if (outcome !== "dropped") return /** @type {Record<string, number[]>} */ (/** @type {unknown} */ (pair))[outcome][unit];
  return Object.values(pair.dropped).reduce((total, counts) => total + counts[unit], 0);
}

/**
 * @param {HTMLElement} table
 * @param {HTMLElement[]} columns
 * @param {HTMLElement[]} rows
 */
function fill(table, columns, rows) {
  const head = make("tr");
  head.append(...columns);
  const top = make("thead");
  top.append(head);
  const titles = columns.map((column) => column.textContent ?? "");
  for (const row of rows) [...row.children].forEach((cell, place) => (/** @type {HTMLElement} */ (cell).dataset.label = titles[place]));
  const body = make("tbody");
  body.append(...rows);
  const caption = table.querySelector("caption");
  table.replaceChildren(...(caption ? [caption] : []), top, body);
}

/**
 * @param {string} text
 * @param {string} [className]
 * @param {string} [title]
 */
function column(text, className = "", title = "") {
  const cell = make("th", className, text);
  cell.scope = "col";
  if (title) cell.title = title;
  return cell;
}

/**
 * @param {SumsView} view
 * @param {number} place
 */
function chip(view, place) {
  const name = view.agents[place].name;
  const element = make("span", "chip");
  element.dataset.agent = String(place % 8);
  element.title = name;
  element.append(make("span", "", cut(name)));
  return element;
}

/**
 * @param {HTMLElement} table
 * @param {SumsView} view
 * @param {0 | 1} unit
 * @param {number | null} learner
 */
export function drawLedger(table, view, unit, learner) {
  const pairs = view.pairs.filter((pair) => learner === null || pair.learner === learner);
  const outcomes = OUTCOMES.filter(([outcome]) => outcome !== "other" || pairs.some((pair) => amount(pair, outcome, unit)));
  const isPartly = pairs.some((pair) => pair.not_drawn);
  const columns = [column("Learner"), column("Source"), column("generated", "number", "By the source, for these prompts."), column("verified", "number", "Its answer could be scored.")];
  if (isPartly && !unit) columns.push(column("not drawn", "number", "Not drawn for this learner in this step (max_sources_per_learner)."));
  columns.push(...outcomes.map(([, title, help]) => column(title, "number", help)), column("outcome of the verified"));
  const rows = pairs.map((pair) => {
    const generated = view.agents[pair.source];
    const row = make("tr", pair.learner === pair.source ? "own" : "");
    const cells = [make("td"), make("td"), make("td", "number", count(unit ? generated.tokens : generated.rollouts)), make("td", "number", count(unit ? generated.verified_tokens : generated.verified))];
    cells[0].append(chip(view, pair.learner));
    cells[1].append(chip(view, pair.source));
    if (isPartly && !unit) cells.push(make("td", "number", count(pair.not_drawn)));
    for (const [outcome] of outcomes) cells.push(outcomeCell(pair, outcome, unit));
    const bar = make("td");
    bar.append(stack(pair, unit));
    row.append(...cells, bar);
    return row;
  });
  fill(table, columns, rows);
  drawTextDifferences(view);
}

/** Causes for which the text that rewards and peers read is not what was sampled. */
const CAUSES = /** @type {Record<string, string>} */ ({
  characters: "bytes that are no whole character, such as a cut one; peers get the text before them",
  special: "special tokens, which have no text",
  space: "a space at the beginning that the tokenizer drops",
  other: "a text that the tokenizer encodes to another one",
});

/** @param {SumsView} view */
function drawTextDifferences(view) {
  const lines = view.agents.flatMap((agent, place) => Object.entries(agent.text_differences ?? {}).filter(([, number]) => number).map(([cause, number]) => {
    const line = make("li");
    line.append(chip(view, place), ` ${count(number)}: ${CAUSES[cause] ?? cause}`);
    return line;
  }));
  const list = document.getElementById("text-differences");
  list?.querySelector("ul")?.replaceChildren(...lines);
  if (list) list.hidden = !lines.length;
}

/**
 * @param {PairSums} pair
 * @param {string} outcome
 * @param {0 | 1} unit
 */
function outcomeCell(pair, outcome, unit) {
  const whole = unit ? pair.tokens : pair.rows;
  const value = amount(pair, outcome, unit);
  const cell = make("td", "number", count(value));
  cell.append(make("span", "part quiet", share(value, whole)));
  if (outcome === "dropped" && value) cell.title = Object.entries(pair.dropped).map(([reason, counts]) => `${reason}: ${count(counts[unit])}`).join(", ");
  if (outcome === "dropped" && value) cell.append(make("span", "part quiet", Object.keys(pair.dropped).join(", ")));
  return cell;
}

/**
 * The outcomes as one bar; its numbers are in the row.
 * @param {PairSums} pair
 * @param {0 | 1} unit
 */
function stack(pair, unit) {
  const bar = make("div", "outcomes");
  bar.setAttribute("aria-hidden", "true");
  const whole = unit ? pair.tokens : pair.rows;
  for (const [outcome, title] of OUTCOMES) {
    const value = amount(pair, outcome, unit);
    if (!value || !whole) continue;
    const piece = make("span", `outcome outcome-${outcome}`);
    piece.style.flexGrow = String(value / whole);
    piece.title = `${title}: ${share(value, whole)}`;
    bar.append(piece);
  }
  return bar;
}

/**
 * @param {HTMLElement} table
 * @param {SumsView} view
 * @param {number | null} learner
 */
export function drawRescuedPrompts(table, view, learner) {
  const pairs = view.pairs.filter((pair) => pair.learner !== pair.source && (learner === null || pair.learner === learner));
  const columns = [column("Learner"), column("Source"), column("prompts", "number"), column("rescue", "number"), column("of them taught", "number"), column("mistake", "number"), column("of them taught", "number")];
  const rows = pairs.map((pair) => {
    const row = make("tr");
    const cells = [make("td"), make("td"), make("td", "number", count(pair.prompts))];
    cells[0].append(chip(view, pair.learner));
    cells[1].append(chip(view, pair.source));
    for (const [prompts, taught] of [pair.rescue, pair.avoided]) {
      const cell = make("td", "number", count(prompts));
      cell.append(make("span", "part quiet", share(prompts, pair.prompts)));
      const second = make("td", "number", count(taught));
      second.append(make("span", "part quiet", share(taught, prompts)));
      cells.push(cell, second);
    }
    row.append(...cells);
    return row;
  });
  fill(table, columns, rows);
}
