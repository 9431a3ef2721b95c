/** The matrix of who taught whom: learners in rows, sources in columns, each cell a number and a link to its rollouts. */

import { count, cut, make, significant } from "../lib/format.js";
import { share, sum } from "./picture.js";

/** @typedef {import("./picture.js").PairSums} PairSums */
/** @typedef {import("./picture.js").SumsView} SumsView */
/** @typedef {"share" | "all" | "positive" | "used" | "clipped"} Measure */

/** @type {Record<Measure, string>} */
export const MEASURES = {
  share: "Of the sum of |weight| over all rollouts that one learner used, the part of each source. Rows add up to 100 %. Weights of different learners move different models.",
  all: "Of the sum of |weight| over all learners, the part of each pair. All cells add up to 100 %.",
  positive: "The same as the share of the learner's |weight|, counting only encouraging rollouts (A > 0): which correct answers moved it.",
  used: "Rollouts whose gradient is not zero, of those drawn for the learner.",
  clipped: "Rollouts with an advantage whose gradient the clip removed, of all with an advantage that were not dropped. A cell opens all rollouts of its pair; there, Clip chooses those below or above the band.",
};

/**
 * @param {SumsView} view
 * @param {PairSums} pair
 * @param {Measure} measure
 * @returns {{text: string, detail: string, part: number}} part: 0 to 1, for the ground
 */
export function cell(view, pair, measure) {
  const peers = view.pairs.filter((other) => measure === "all" || other.learner === pair.learner);
  const used = `${count(pair.used[0])} of ${count(pair.rows)}`;
  if (measure === "used") return { text: used, detail: "taught", part: pair.rows ? pair.used[0] / pair.rows : 0 };
  if (measure === "clipped") {
    const of = pair.used[0] + pair.clipped[0] + pair.other[0];
    return { text: share(pair.clipped[0], of), detail: `${count(pair.clipped[0])} of ${count(of)}`, part: of ? pair.clipped[0] / of : 0 };
  }
  /** @param {PairSums} one */
  const weight = (one) => (measure === "positive" ? one.weight[0] : sum(one.weight));
  const whole = peers.reduce((total, other) => total + weight(other), 0);
  return { text: share(weight(pair), whole), detail: `Σ|w| ${significant(weight(pair))} · ${used}`, part: whole ? weight(pair) / whole : 0 };
}

/**
 * @param {HTMLElement} table emptied first
 * @param {SumsView} view
 * @param {Measure} measure
 * @param {(pair: PairSums) => string} address of a cell's rollouts
 */
export function drawMatrix(table, view, measure, address) {
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.cell : undefined;
  const names = view.agents.map((agent) => agent.name);
  const head = make("tr");
  const corner = make("th", "small", "learner ← source");
  corner.scope = "col";
  head.append(corner, ...names.map((name, place) => heading(name, place, "col")));
  const rows = names.map((name, learner) => {
    const row = make("tr");
    row.append(heading(name, learner, "row"), ...names.map((_, source) => drawCell(view, learner, source, measure, address)));
    return row;
  });
  const body = make("tbody");
  body.append(...rows);
  const top = make("thead");
  top.append(head);
  const caption = table.querySelector("caption");
  table.replaceChildren(...(caption ? [caption] : []), top, body);
  // One stop of the Tab key; the arrow keys move on from it.
  const links = [...table.querySelectorAll("a")];
  const current = links.find((link) => link.dataset.cell === focused) ?? links[0];
  for (const link of links) link.tabIndex = link === current ? 0 : -1;
  if (focused && current?.dataset.cell === focused) current.focus({ preventScroll: true });
}

/**
 * @param {string} name
 * @param {number} place
 * @param {"row" | "col"} scope
 */
function heading(name, place, scope) {
  const head = make("th");
  head.scope = scope;
  const chip = make("span", "chip");
  chip.dataset.agent = String(place % 8);
  chip.title = name;
  chip.append(make("span", "", cut(name)));
  head.append(chip);
  return head;
}

/**
 * @param {SumsView} view
 * @param {number} learner
 * @param {number} source
 * @param {Measure} measure
 * @param {(pair: PairSums) => string} address
 */
function drawCell(view, learner, source, measure, address) {
  const element = make("td", learner === source ? "own" : "");
  const pair = view.pairs.find((one) => one.learner === learner && one.source === source);
  if (!pair || !pair.rows) {
    element.append(make("span", "quiet", pair ? "none used" : "not shared"));
    return element;
  }
  const { text, detail, part } = cell(view, pair, measure);
  const link = make("a", "cell");
  link.href = address(pair);
  link.dataset.cell = `${learner}-${source}`;
  link.append(make("strong", "", text), make("span", "small", detail));
  const names = view.agents.map((agent) => agent.name);
  link.setAttribute("aria-label", `${names[learner]} from ${learner === source ? "its own rollouts" : names[source]}: ${text}, ${detail}. Open the rollouts`);
  element.style.setProperty("--part", `${Math.round(part * 100)}%`);
  element.append(link);
  return element;
}

/**
 * Arrow keys move between the cells of a matrix.
 * @param {HTMLElement} table
 */
export function moveByKeys(table) {
  table.addEventListener("keydown", (event) => {
    const moves = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] });
    const move = moves[event.key];
    const at = event.target instanceof HTMLElement ? event.target.dataset.cell : undefined;
    if (!move || !at) return;
    const [row, column] = at.split("-").map(Number);
    const next = table.querySelector(`[data-cell="${row + move[0]}-${column + move[1]}"]`);
    if (!(next instanceof HTMLElement)) return;
    event.preventDefault();
    for (const link of table.querySelectorAll("a")) link.tabIndex = link === next ? 0 : -1;
    next.focus();
  });
}
