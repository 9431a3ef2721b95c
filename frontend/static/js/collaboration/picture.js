/** The paper's collaboration picture with a step's numbers: agents, rollouts crossing over, omega, J_homo and J_hete. */

import { count, cut, score, significant } from "../lib/format.js";
import { canvas, shape } from "../lib/svg.js";

/**
 * One agent of a step. verified: scored rollouts; correct: those with a reward above 0.
 * @typedef {Api.AgentSums} AgentSums
 */
/**
 * One ordered pair; lists [with A > 0, with A < 0] for weight, lost, evaluated, lower, upper; [rollouts, tokens] for
 * the outcomes; [prompts, of which taught] for rescue and avoided.
 * @typedef {Api.PairSumsAnswer} PairSums
 * @typedef {{agents: AgentSums[], pairs: PairSums[], sentences?: Api.SentenceAnswer[]}} SumsView
 */

/** @param {number[]} both */
export const sum = (both) => both[0] + both[1];

/**
 * `56 %`, with one digit after the point below ten.
 * @param {number} part
 * @param {number} whole
 */
export function share(part, whole) {
  if (!whole) return "–";
  const percent = (100 * part) / whole;
  return `${percent > 0 && percent < 9.95 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

const ARROW = 9;

/**
 * @param {HTMLElement} root
 * @param {SumsView} view
 * @param {number | null} chosen learner; null for all
 * @param {number} [room] height to fill, where the agents fit in; 0 for as much as the picture needs
 */
export function drawPicture(root, view, chosen, room = 0) {
  const agents = view.agents;
  const width = Math.max(300, root.clientWidth);
  const isNarrow = width < 640;
  const box = width < 480 ? 104 : Math.min(250, width * 0.24);
  const isLow = agents.length > (room ? 3 : 4);
  const rowHeight = isLow ? 64 : 92;
  const needed = isLow || room ? 8 : isNarrow ? 28 : 36;
  const gap = Math.max(needed, room ? (room - 28) / agents.length - rowHeight : 0);
  const height = 28 + agents.length * (rowHeight + gap);
  const picture = canvas(width, height, description(view));
  const right = width - box;
  /** @param {number} place */
  const top = (place) => 28 + place * (rowHeight + gap);
  const shares = view.pairs.length > agents.length;
  const heads = isNarrow ? ["answers", "", "learns"] : ["each answers the same prompts", shares ? "verified rollouts cross over" : "", shares ? "each learns: " : "each learns from its own"];
  picture.append(shape("text", { x: 0, y: 12, class: "head" }, heads[0]));
  picture.append(shape("text", { x: width / 2, y: 12, class: "head tick-middle" }, heads[1]));
  const learns = shape("text", { x: width, y: 12, class: "head tick-left" }, heads[2]);
  if (shares && !isNarrow) learns.append(shape("tspan", { class: "italic" }, "J"), " = ", ...jName("homo"), shape("tspan", { dy: -3 }, " + "), ...jName("hete"));
  picture.append(learns);

  const labels = shape("g");
  // Thin arrows last, so that a wide one does not hide them.
  const arrows = view.pairs.map((pair) => ({ pair, part: partOf(view, pair) })).sort((a, b) => b.part - a.part);
  for (const { pair, part } of arrows) {
    const isFaded = chosen !== null && pair.learner !== chosen;
    const from = { x: box, y: top(pair.source) + port(pair.learner, agents.length, rowHeight) };
    const to = { x: right - ARROW, y: top(pair.learner) + port(pair.source, agents.length, rowHeight) };
    picture.append(arrow(from, to, pair, part, isFaded, title(view, pair, part)));
    const isLabelled = !isNarrow && !isFaded && (agents.length < 3 || chosen !== null);
    if (isLabelled) labels.append(label(from, to, pair, agents.length, title(view, pair, part)));
  }
  agents.forEach((agent, place) => {
    picture.append(sourceBox(agent, place, capabilityOf(view, place), { y: top(place), width: box, height: rowHeight, isNarrow }));
    picture.append(learnerBox(view, place, { x: right, y: top(place), width: box, height: rowHeight, isNarrow }));
  });
  picture.append(labels);
  root.replaceChildren(picture);
}

/**
 * Share of a pair in what moved its learner.
 * @param {SumsView} view
 * @param {PairSums} pair
 */
function partOf(view, pair) {
  const all = view.pairs.filter((other) => other.learner === pair.learner).reduce((total, other) => total + sum(other.weight), 0);
  return all ? sum(pair.weight) / all : 0;
}

/**
 * Where in a box an arrow begins or ends, so that they do not all meet in one point.
 * @param {number} place
 * @param {number} number
 * @param {number} height
 */
const port = (place, number, height) => height * (0.2 + (0.6 * (place + 0.5)) / number);

/**
 * @param {{x: number, y: number}} from
 * @param {{x: number, y: number}} to
 * @param {PairSums} pair
 * @param {number} part
 * @param {boolean} isFaded
 * @param {string} words
 */
function arrow(from, to, pair, part, isFaded, words) {
  const group = shape("g", { class: isFaded ? "arrow faded" : "arrow", "data-pair": `${pair.learner}-${pair.source}` });
  const middle = (from.x + to.x) / 2;
  const thickness = part ? 1.5 + part * 16 : 1;
  const path = shape("path", { d: `M ${from.x} ${from.y} C ${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`, "stroke-width": thickness, "stroke-dasharray": part ? "none" : "2 4" });
  const colour = `var(--agent-${pair.source % 8})`;
  path.style.stroke = colour;
  const half = Math.max(4, thickness / 2 + 2);
  const head = shape("path", { d: `M ${to.x - 1} ${to.y - half} L ${to.x + ARROW} ${to.y} L ${to.x - 1} ${to.y + half} z`, class: "arrow-head" });
  head.style.fill = colour;
  group.append(path, head, shape("title", {}, words));
  return group;
}

/** Omega in a step: one number, or the lowest and the highest of its prompts. @param {PairSums} pair */
function omegas(pair) {
  const [low, high] = [significant(pair.omega_low), significant(pair.omega)];
  return low === high ? high : `${low} to ${high}`;
}

/**
 * @param {{x: number, y: number}} from
 * @param {{x: number, y: number}} to
 * @param {PairSums} pair
 * @param {number} number of agents
 * @param {string} words
 */
function label(from, to, pair, number, words) {
  const isOwn = pair.learner === pair.source;
  const used = `${count(pair.used[0])} of ${count(pair.rows)}`;
  const omega = isOwn || pair.omega === null ? "" : `ω ${omegas(pair)}${pair.clamped ? " (clamped)" : ""} · `;
  const text = `${omega}${used} taught`;
  // On the curve of `arrow`, nearer to the source for shared rollouts, so that the labels of two that cross stay apart.
  const t = isOwn ? 0.5 : number > 2 ? 0.72 : 0.2;
  const middle = (from.x + to.x) / 2;
  const x = (1 - t) ** 3 * from.x + 3 * (1 - t) ** 2 * t * middle + 3 * (1 - t) * t ** 2 * middle + t ** 3 * to.x;
  const y = (1 - t) ** 3 * from.y + 3 * (1 - t) ** 2 * t * from.y + 3 * (1 - t) * t ** 2 * to.y + t ** 3 * to.y;
  const group = shape("g");
  const width = text.length * 6.3 + 10;
  const left = Math.max(from.x + 6, x - width / 2);
  group.append(shape("rect", { x: left, y: y - 9, width, height: 18, rx: 3, class: "label-ground" }), shape("text", { x: left + width / 2, y: y + 4, class: "label tick-middle" }, text), shape("title", {}, words));
  return group;
}

/**
 * @param {SumsView} view
 * @param {number} place
 */
function capabilityOf(view, place) {
  return view.pairs.find((pair) => pair.learner === place && pair.capability !== null)?.capability ?? null;
}

/**
 * @param {AgentSums} agent
 * @param {number} place
 * @param {number | null} capability
 * @param {{y: number, width: number, height: number, isNarrow: boolean}} at
 */
function sourceBox(agent, place, capability, at) {
  const group = boxAt(0, at.y, at.width, at.height, place, agent.name, at.isNarrow);
  const [correctAnswers, verified] = [count(agent.correct), count(agent.verified)];
  const correct = at.isNarrow ? `${correctAnswers}/${verified} correct` : `${correctAnswers} of ${verified} correct`;
  group.append(shape("text", { x: 12, y: at.y + 38, class: "box-text" }, correct));
  if (capability !== null && at.height > 80) group.append(shape("text", { x: 12, y: at.y + 56, class: "box-text" }, at.isNarrow ? `capability ${score(capability)}` : `capability P = ${score(capability)}`));
  group.append(shape("title", {}, `${agent.name}: ${agent.rollouts} rollouts, ${agent.verified} verified, ${agent.correct} correct`));
  return group;
}

/**
 * @param {SumsView} view
 * @param {number} place
 * @param {{x: number, y: number, width: number, height: number, isNarrow: boolean}} at
 */
function learnerBox(view, place, at) {
  const group = boxAt(at.x, at.y, at.width, at.height, place, view.agents[place].name, at.isNarrow);
  const pairs = view.pairs.filter((pair) => pair.learner === place);
  const parts = pairs.map((pair) => ({ pair, part: partOf(view, pair) }));
  const total = parts.reduce((all, { part }) => all + part, 0);
  if (!total) {
    group.append(shape("text", { x: at.x + 12, y: at.y + 38, class: "box-text" }, "nothing moved it"));
    return group;
  }
  const own = parts.find(({ pair }) => pair.source === place)?.part ?? 0;
  let x = at.x + 12;
  const wide = at.width - 20;
  for (const { pair, part } of [...parts].sort((a, b) => Number(b.pair.source === place) - Number(a.pair.source === place))) {
    if (!part) continue;
    const piece = shape("rect", { x, y: at.y + 28, width: Math.max(1, part * wide - 1), height: 10, class: "piece" });
    piece.style.fill = `var(--agent-${pair.source % 8})`;
    piece.append(shape("title", {}, `${view.agents[pair.source].name}: ${share(part, 1)}`));
    group.append(piece);
    x += part * wide;
  }
  const peers = share(1 - own, 1);
  if (at.height > 80) {
    group.append(jText(at.x + 12, at.y + 56, "homo", share(own, 1), "own", at.isNarrow), jText(at.x + 12, at.y + 74, "hete", pairs.length > 1 ? peers : "–", "peers", at.isNarrow));
  } else {
    group.append(shape("text", { x: at.x + 12, y: at.y + 54, class: "box-text" }, at.isNarrow ? `peers ${peers}` : `own ${share(own, 1)} · peers ${peers}`));
  }
  return group;
}

/** J with a lowered index; what follows is raised again by 3. @param {string} index */
const jName = (index) => [shape("tspan", { class: "italic" }, "J"), shape("tspan", { class: "index", dy: 3 }, index)];

/**
 * @param {number} x
 * @param {number} y
 * @param {string} index
 * @param {string} value
 * @param {string} from
 * @param {boolean} isNarrow
 */
function jText(x, y, index, value, from, isNarrow) {
  const text = shape("text", { x, y, class: "box-text" });
  if (isNarrow) {
    text.append(shape("tspan", { class: "strong" }, value), shape("tspan", {}, from === "own" ? " own" : ` from ${from}`));
    return text;
  }
  text.append(...jName(index), shape("tspan", { dy: -3, class: "strong" }, ` ${value}`));
  text.append(shape("tspan", {}, ` from ${from}`));
  return text;
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {number} place
 * @param {string} name
 * @param {boolean} isNarrow
 */
function boxAt(x, y, width, height, place, name, isNarrow) {
  const group = shape("g");
  const edge = shape("rect", { x, y, width: 4, height, class: "box-edge" });
  edge.style.fill = `var(--agent-${place % 8})`;
  const room = Math.floor((width - 16) / 8);
  const short = name.length <= room ? name : isNarrow ? `${name.slice(0, room - 1)}…` : cut(name);
  group.append(shape("rect", { x, y, width, height, rx: 3, class: "box" }), edge, shape("text", { x: x + 12, y: y + 19, class: "box-name" }, short));
  return group;
}

/**
 * @param {SumsView} view
 * @param {PairSums} pair
 * @param {number} part
 */
function title(view, pair, part) {
  const names = view.agents.map((agent) => agent.name);
  const omega = pair.learner === pair.source || pair.omega === null ? "" : `, ω = ${omegas(pair)}${pair.clamped ? " (clamped)" : ""}`;
  return `${names[pair.learner]} ← ${names[pair.source]}: ${share(part, 1)} of its |weight|, ${pair.used[0]} of ${pair.rows} rollouts taught${omega}`;
}

/** @param {SumsView} view */
function description(view) {
  return `Collaboration. ${view.pairs.map((pair) => title(view, pair, partOf(view, pair))).join(". ")}.`;
}
