/** Small SVG pictures: elements, a log axis, patterns, and lines over steps. Text never becomes markup. */

import { make, significant } from "./format.js";

const NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {string} [text]
 * @returns {SVGElementTagNameMap[K]}
 */
export function shape(tag, attributes = {}, text = "") {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
  if (text) element.textContent = text;
  return element;
}

/**
 * An empty picture of a given size, with a text alternative.
 * @param {number} width
 * @param {number} height
 * @param {string} label empty if its parts have labels
 */
export function canvas(width, height, label) {
  const picture = shape("svg", { viewBox: `0 0 ${Math.round(width)} ${Math.round(height)}`, width: Math.round(width), height: Math.round(height), class: "svg" });
  if (label) {
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", label);
  } else picture.setAttribute("aria-hidden", "true");
  return picture;
}

let patterns = 0;

/**
 * A hatch or dots in the text's colour, so that a mark is never colour alone.
 * @param {SVGSVGElement} picture
 * @param {"hatch" | "dots"} kind
 * @param {string} name class that colours it
 * @returns {string} for `fill`
 */
export function pattern(picture, kind, name) {
  const id = `pattern-${(patterns += 1)}`;
  const pattern = shape("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", ...(kind === "hatch" ? { patternTransform: "rotate(45)" } : {}) });
  if (kind === "hatch") pattern.append(shape("line", { x1: 1, y1: 0, x2: 1, y2: 5, class: `pattern-line ${name}` }));
  else pattern.append(shape("circle", { cx: 2, cy: 2, r: 1, class: `pattern-dot ${name}` }));
  const definitions = shape("defs");
  definitions.append(pattern);
  picture.append(definitions);
  return `url(#${id})`;
}

/**
 * Readable ticks of a log axis: 1, 2, 5 times powers of ten, or even steps if the axis is shorter than that.
 * @param {number} low
 * @param {number} high
 * @returns {number[]}
 */
export function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const digit of [1, 2, 5]) ticks.push(Number(`${digit}e${power}`));
  }
  const inside = ticks.filter((tick) => tick >= low && tick <= high);
  if (inside.length >= 3) return inside;
  const rough = (high - low) / 5;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * size).find((one) => one >= rough) ?? rough;
  const even = [];
  for (let place = Math.ceil(low / step); place * step <= high; place += 1) even.push(Number((place * step).toPrecision(6)));
  return even;
}

/**
 * @param {number} low
 * @param {number} high
 * @returns {number[]} whole steps, at most seven
 */
export function stepTicks(low, high) {
  const size = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 1_000_000].find((one) => (high - low) / one <= 6) ?? 1e7;
  const ticks = [];
  for (let tick = Math.ceil(low / size) * size; tick <= high; tick += size) ticks.push(tick);
  return ticks;
}

/**
 * @typedef {Api.PairLine} Line
 * @typedef {{line: Line | null, label: string, title: string, colour: string, dash: string, thick?: boolean}} Drawn
 */

/**
 * The last value at or before a step, with the span that its bucket hides.
 * @param {Line | null} line
 * @param {number} step
 * @param {number} width of a bucket
 * @returns {{value: number, low: number, high: number, at: number} | null}
 */
export function valueAt(line, step, width) {
  if (!line) return null;
  const bucket = Math.floor(step / width);
  const place = line.steps.findIndex((one) => Math.floor(one / width) === bucket);
  if (place < 0) return null;
  return { value: line.last[place], low: (line.low ?? line.last)[place], high: (line.high ?? line.last)[place], at: line.steps[place] };
}

/**
 * Lines over steps with a mark at the chosen one, and a legend with their values there.
 * @param {HTMLElement} root emptied first
 * @param {{lines: Drawn[], first: number, last: number, width: number, range: [number, number], step: number | null,
 *   height?: number, limit?: {value: number, label: string}, label: string, bars?: {places: number[], colour: string, dash: string}[],
 *   choose: (step: number) => void}} chart limit: a line across.  bars: buckets to mark at the foot
 */
export function drawLines(root, chart) {
  const width = Math.max(260, root.clientWidth);
  const height = chart.height ?? 132;
  const bars = chart.bars ?? [];
  const [left, right, top, foot] = [36, 8, 6, 20 + bars.length * 5];
  const picture = canvas(width, height + bars.length * 5, chart.label);
  const span = Math.max(1, chart.last - chart.first);
  const [low, high] = chart.range;
  const bottom = height + bars.length * 5 - foot;
  /** @param {number} step */
  const x = (step) => left + ((step - chart.first) / span) * (width - left - right);
  /** @param {number} value */
  const y = (value) => top + (1 - (value - low) / (high - low)) * (bottom - top);
  for (const tick of [low, (low + high) / 2, high]) {
    picture.append(shape("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid-line" }));
    picture.append(shape("text", { x: left - 4, y: y(tick) + 4, class: "tick tick-left" }, significant(tick)));
  }
  for (const tick of stepTicks(chart.first, chart.last)) picture.append(shape("text", { x: x(tick), y: height + bars.length * 5 - 4, class: "tick tick-middle" }, String(tick)));
  if (chart.limit) {
    const at = y(chart.limit.value);
    picture.append(shape("line", { x1: left, x2: width - right, y1: at, y2: at, class: "limit-line" }), shape("text", { x: width - right, y: at - 3, class: "tick tick-left" }, chart.limit.label));
  }
  for (const { line, colour, dash, thick } of chart.lines) {
    if (!line) continue;
    if (line.low && line.high) {
      const upper = line.high;
      const lower = line.low;
      const outline = [...line.steps.map((step, place) => `${x(step)},${y(upper[place])}`), ...line.steps.map((step, place) => `${x(step)},${y(lower[place])}`).reverse()];
      const area = shape("polygon", { points: outline.join(" "), class: "span-area" });
      area.style.fill = colour;
      picture.append(area);
    }
    const path = shape("polyline", { points: line.steps.map((step, place) => `${x(step).toFixed(1)},${y(line.last[place]).toFixed(1)}`).join(" "), class: "line", "stroke-dasharray": dash, "stroke-width": thick ? 2.25 : 1.5 });
    path.style.stroke = colour;
    picture.append(path);
    if (line.steps.length > 40) continue;
    for (const [place, step] of line.steps.entries()) {
      const dot = shape("circle", { cx: x(step), cy: y(line.last[place]), r: 2 });
      dot.style.fill = colour;
      picture.append(dot);
    }
  }
  bars.forEach(({ places, colour, dash }, row) => {
    for (const place of places) {
      const from = x(Math.max(chart.first, place * chart.width));
      const bar = shape("line", { x1: from, x2: Math.max(from + 2, x(Math.min(chart.last, (place + 1) * chart.width))), y1: bottom + 4 + row * 5, y2: bottom + 4 + row * 5, "stroke-width": 3, "stroke-dasharray": dash });
      bar.style.stroke = colour;
      picture.append(bar);
    }
  });
  if (chart.step !== null && chart.step >= chart.first && chart.step <= chart.last) picture.append(shape("line", { x1: x(chart.step), x2: x(chart.step), y1: top, y2: bottom, class: "cursor-line" }));
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const share = ((event.clientX - box.left) * (width / box.width) - left) / (width - left - right);
    chart.choose(Math.round(chart.first + share * span));
  });
  root.replaceChildren(picture, legend(chart));
}

/** @param {{lines: Drawn[], step: number | null, width: number}} chart */
function legend(chart) {
  const list = make("ul", "line-legend small");
  for (const { line, label, title, colour, dash, thick } of chart.lines) {
    const item = make("li");
    item.title = title;
    const mark = canvas(26, 10, "");
    const stroke = shape("line", { x1: 0, x2: 26, y1: 5, y2: 5, "stroke-dasharray": dash, "stroke-width": thick ? 3 : 2 });
    stroke.style.stroke = colour;
    mark.append(stroke);
    const point = chart.step === null ? null : valueAt(line, chart.step, chart.width);
    const spans = point && point.low !== point.high ? ` (${significant(point.low)} to ${significant(point.high)})` : "";
    item.append(mark, make("span", "line-name", label), make("span", "number", line ? `${significant(point?.value)}${spans}` : "not measured"));
    list.append(item);
  }
  return list;
}
