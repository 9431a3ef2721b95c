/** The clipping panel of each ordered pair: its raw ratios under the stepwise band, and its clip shares over time. */

import { count, cut, make, significant } from "../lib/format.js";
import { share, sum } from "./picture.js";
import { canvas, drawLines, logTicks, pattern, shape } from "../lib/svg.js";

/**
 * @typedef {Api.SourceRatios} Histogram
 * @typedef {Api.BandStep} Bound
 * @typedef {Api.GatePoint} GatePoint
 * @typedef {Api.RatiosAnswer} Ratios
 * @typedef {import("./omega.js").Timeline} Timeline
 * @typedef {{agents: string[], trap_at: number, can_trap: boolean}} ClipRule
 */

const HALF = 76;
const BAND_ROW = 6;
const LINES = [
  { name: "clip_lower_frac/positive", label: "below, A > 0", colour: "var(--encouraging)", dash: "none", thick: true },
  { name: "clip_lower_frac/negative", label: "below, A < 0", colour: "var(--discouraging)", dash: "none" },
  { name: "clip_upper_frac/positive", label: "above, A > 0", colour: "var(--encouraging)", dash: "4 3" },
  { name: "clip_upper_frac/negative", label: "above, A < 0", colour: "var(--discouraging)", dash: "4 3" },
];

/**
 * @param {HTMLElement} root emptied first
 * @param {{learner: number, source: number}[]} pairs
 * @param {Map<number, Ratios>} ratios by learner; without an entry only the lines are drawn
 * @param {Timeline} timeline
 * @param {ClipRule} rule
 * @param {number | null} step
 * @param {(step: number) => void} choose
 */
export function drawPanels(root, pairs, ratios, timeline, rule, step, choose) {
  const frames = pairs.map((pair) => {
    const panel = make("section", "card panel");
    panel.dataset.pair = `${pair.learner}-${pair.source}`;
    const title = make("h3", "", `${cut(rule.agents[pair.learner])} ← ${cut(rule.agents[pair.source])}`);
    title.title = `${rule.agents[pair.learner]} learns from ${rule.agents[pair.source]}`;
    const picture = make("div", "histogram");
    const lines = make("div");
    panel.append(title, picture, lines);
    return { pair, panel, picture, lines };
  });
  root.replaceChildren(...frames.map(({ panel }) => panel));
  for (const { pair, picture, lines } of frames) {
    const ofLearner = ratios.get(pair.learner);
    const histogram = ofLearner?.sources.find((one) => one.source === pair.source);
    if (ofLearner && histogram) drawHistogram(picture, ofLearner, histogram, rule);
    const clips = timeline.pairs.find((one) => one.learner === pair.learner && one.source === pair.source)?.clips ?? {};
    if (!LINES.some(({ name }) => clips[name])) continue;
    lines.append(make("h4", "small", "Shares outside the band over time"));
    const frame = make("div");
    lines.append(frame);
    drawLines(frame, {
      lines: LINES.map(({ name, ...line }) => ({ ...line, line: clips[name] ?? null, title: name })),
      first: timeline.first,
      last: timeline.last,
      width: timeline.width,
      range: [0, 1],
      step,
      limit: rule.can_trap ? { value: rule.trap_at, label: "alert, below and A > 0" } : undefined,
      label: `Clip shares of ${rule.agents[pair.learner]} from ${rule.agents[pair.source]} over the steps`,
      choose,
    });
  }
}

/**
 * @param {HTMLElement} root
 * @param {Ratios} ratios
 * @param {Histogram} histogram
 * @param {ClipRule} rule
 */
function drawHistogram(root, ratios, histogram, rule) {
  const [learner, source] = [rule.agents[ratios.learner], rule.agents[histogram.source]];
  const number = sum(histogram.evaluated);
  const when = ratios.num_steps > 1 ? `steps ${ratios.steps[0]} to ${ratios.steps[1]} (${ratios.num_steps} recorded)` : `step ${ratios.steps[0]}`;
  if (!number) {
    root.append(make("p", "quiet", `In ${when} no rollout of ${source} was evaluated with an advantage that is not 0.`));
    return;
  }
  root.append(sharesOutside(histogram, learner, source));
  const width = Math.max(280, root.clientWidth);
  const band = ratios.band.length ? ratios.band.length * BAND_ROW + 10 : 0;
  const height = 14 + 2 * HALF + 20 + band;
  const picture = canvas(width, height, `Histogram of raw ratios of ${when}: ${words(histogram)}`);
  const hatches = [pattern(picture, "hatch", "encouraging"), pattern(picture, "hatch", "discouraging")];
  const [left, right] = [36, 8];
  const low = Math.log(ratios.edges[0]);
  const span = Math.log(ratios.edges[ratios.edges.length - 1]) - low;
  /** @param {number} ratio */
  const x = (ratio) => left + Math.min(1, Math.max(0, (Math.log(ratio) - low) / span)) * (width - left - right);
  const middle = 14 + HALF;
  drawBand(picture, ratios.band, x, { top: 14, bottom: 14 + 2 * HALF, below: 14 + 2 * HALF + 22, width });
  const highest = Math.max(1, ...[0, 1].flatMap((sign) => histogram.taught[sign].map((taught, bar) => taught + histogram.lost[sign][bar])));
  const unit = (HALF - 6) / highest;
  [0, 1].forEach((sign) => {
    const direction = sign ? 1 : -1;
    histogram.taught[sign].forEach((taught, bar) => {
      const lost = histogram.lost[sign][bar];
      if (!taught && !lost) return;
      const group = shape("g", { class: sign ? "discouraging" : "encouraging" });
      const where = { x: x(ratios.edges[bar]) + 0.5, width: Math.max(1, x(ratios.edges[bar + 1]) - x(ratios.edges[bar]) - 1) };
      /** @param {number} from @param {number} number @param {string} className @param {string} fill */
      const piece = (from, number, className, fill) => {
        const size = number * unit;
        const start = from * unit;
        const y = direction < 0 ? middle - start - size : middle + start;
        group.append(shape("rect", { ...where, y, height: size, class: className, ...(fill ? { fill } : {}) }));
      };
      if (taught) piece(0, taught, "taught", "");
      if (lost) piece(taught, lost, "lost", hatches[sign]);
      group.append(shape("title", {}, `s from ${significant(ratios.edges[bar])} to ${significant(ratios.edges[bar + 1])}, A ${sign ? "< 0" : "> 0"}: ${taught} taught, ${lost} lost`));
      picture.append(group);
    });
  });
  drawGate(picture, ratios.gate, x, middle);
  picture.append(shape("line", { x1: left, x2: width - right, y1: middle, y2: middle, class: "axis-line" }));
  for (const [y, text] of /** @type {[number, string][]} */ ([[middle - 4, "0"], [14 + 8, count(highest)], [14 + 2 * HALF, count(highest)]])) picture.append(shape("text", { x: left - 4, y, class: "tick tick-left" }, text));
  for (const tick of logTicks(ratios.edges[0], ratios.edges[ratios.edges.length - 1])) {
    picture.append(shape("line", { x1: x(tick), x2: x(tick), y1: 14 + 2 * HALF, y2: 14 + 2 * HALF + 4, class: "axis-line" }), shape("text", { x: x(tick), y: 14 + 2 * HALF + 15, class: "tick tick-middle" }, String(tick)));
  }
  root.append(picture, key());
  const beyond = sum(histogram.beyond);
  if (beyond) root.append(make("p", "quiet small", `${count(beyond)} beyond the axis are counted in its first and last bar.`));
}

/**
 * The band behind the bars, and its steps under the axis: one for each update m.
 * @param {SVGSVGElement} picture
 * @param {Bound[]} band
 * @param {(ratio: number) => number} x
 * @param {{top: number, bottom: number, below: number, width: number}} at
 */
function drawBand(picture, band, x, at) {
  if (!band.length) return;
  const [first, last] = [band[0], band[band.length - 1]];
  /** @param {number} ratio */
  const place = (ratio) => (ratio > 0 ? x(ratio) : x(1e-9));
  for (const bound of first === last ? [first] : [first, last]) {
    picture.append(shape("rect", { x: place(bound.low), y: at.top, width: Math.max(1, place(bound.high) - place(bound.low)), height: at.bottom - at.top, class: "band" }));
  }
  band.forEach((bound, row) => {
    const bar = shape("rect", { x: place(bound.low), y: at.below + row * BAND_ROW, width: Math.max(1, place(bound.high) - place(bound.low)), height: BAND_ROW - 1.5, class: "band-step" });
    bar.append(shape("title", {}, `${bound.m === null ? "" : `m = ${bound.m}: `}[${significant(bound.low)}, ${significant(bound.high)}]`));
    picture.append(bar);
  });
  for (const edge of [first.low, first.high]) {
    if (edge > 0) picture.append(shape("line", { x1: x(edge), x2: x(edge), y1: at.top - 4, y2: at.below + band.length * BAND_ROW, class: "band-edge" }));
  }
  const low = first.m === null ? `${significant(first.low)}` : `${significant(first.low)} at m = ${first.m}`;
  const label = `band from ${low}${first === last ? "" : ` to ${significant(last.low)} at m = ${last.m}`} up to ${significant(first.high)}`;
  const isRight = place(first.low) + 6 * label.length > at.width;
  picture.append(shape("text", { x: isRight ? at.width : Math.max(36, place(first.low)), y: 9, class: `tick ${isRight ? "tick-left" : ""}` }, label));
}

/**
 * What a rollout of |A| = 1 weighs at each ratio: encouraging ones upwards, discouraging ones downwards.
 * @param {SVGSVGElement} picture
 * @param {GatePoint[]} gate
 * @param {(ratio: number) => number} x
 * @param {number} middle
 */
function drawGate(picture, gate, x, middle) {
  const highest = Math.max(1, ...gate.flatMap((point) => [point.positive, point.negative]));
  for (const sign of /** @type {("positive" | "negative")[]} */ (["positive", "negative"])) {
    const direction = sign === "positive" ? -1 : 1;
    const points = gate.map((point) => `${x(point.s).toFixed(1)},${(middle + (direction * (HALF - 6) * point[sign]) / highest).toFixed(1)}`);
    const line = shape("polyline", { points: points.join(" "), class: "gate" });
    line.append(shape("title", {}, `Weight of a rollout of |A| = 1 by its ratio, A ${sign === "positive" ? "> 0" : "< 0"}; highest ${significant(highest)}`));
    picture.append(line);
  }
}

/** What the shapes of the bars mean. */
function key() {
  const list = make("ul", "line-legend small");
  for (const [className, isLost, text] of /** @type {[string, boolean, string][]} */ ([
    ["encouraging", false, "A > 0, taught"],
    ["encouraging", true, "A > 0, lost"],
    ["discouraging", false, "A < 0, taught"],
    ["discouraging", true, "A < 0, lost"],
  ])) {
    const item = make("li");
    const mark = canvas(18, 12, "");
    const fill = isLost ? pattern(mark, "hatch", className) : "";
    const group = shape("g", { class: className });
    group.append(shape("rect", { x: 1, y: 1, width: 16, height: 10, class: isLost ? "lost" : "taught", ...(fill ? { fill } : {}) }));
    mark.append(group);
    item.append(mark, make("span", "", text));
    list.append(item);
  }
  const item = make("li");
  const mark = canvas(18, 12, "");
  mark.append(shape("polyline", { points: "1,10 8,3 17,3", class: "gate" }));
  item.append(mark, make("span", "", "weight at |A| = 1"));
  list.append(item);
  return list;
}

/**
 * @param {string} text
 * @param {string} part
 */
function numberCell(text, part) {
  const cell = make("td", "number", text);
  const dot = make("span", "cell-dot", " · ");
  const share = make("span", "quiet");
  share.append(dot, part);
  cell.append(share);
  return cell;
}

/** @param {Histogram} histogram */
function words(histogram) {
  const part = (/** @type {number} */ sign) => `${share(histogram.lower[sign], histogram.evaluated[sign])} of ${count(histogram.evaluated[sign])} below the band, ${share(histogram.upper[sign], histogram.evaluated[sign])} above, ${share(histogram.unused[sign], histogram.evaluated[sign])} taught nothing`;
  return `A > 0: ${part(0)}. A < 0: ${part(1)}.`;
}

/**
 * The shares outside the band; above them the sentence about a delta trap, if the server found one.
 * @param {Histogram} histogram
 * @param {string} learner
 * @param {string} source
 */
function sharesOutside(histogram, learner, source) {
  const box = make("div", "stack-tight");
  if (histogram.trap) box.append(make("p", "trap", histogram.trap));
  const table = make("table", "table shares small");
  table.append(make("caption", "visually-hidden", `Rollouts of ${source} outside the band of ${learner}`));
  const head = make("tr");
  for (const text of ["", "evaluated", "below", "above", "lost"]) {
    const column = make(text ? "th" : "td", text ? "number" : "", text);
    if (column instanceof HTMLTableCellElement && text) column.scope = "col";
    head.append(column);
  }
  const body = make("tbody");
  [0, 1].forEach((sign) => {
    const row = make("tr");
    const name = make("th", "", sign ? "A < 0" : "A > 0");
    name.scope = "row";
    row.append(name, make("td", "number", count(histogram.evaluated[sign])));
    for (const part of [histogram.lower[sign], histogram.upper[sign], histogram.unused[sign]]) row.append(numberCell(count(part), share(part, histogram.evaluated[sign])));
    body.append(row);
  });
  const top = make("thead");
  top.append(head);
  table.append(top, body);
  box.append(table);
  return box;
}
