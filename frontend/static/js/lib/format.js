/** How numbers are written in the browser: the rules of workers/contract/number_format.py. An en dash stands for a missing number. */

/** Metrics from 0 to 1 that are read in columns; all others have three significant digits. */
const SCORE = /^((accuracy|capability|reward|clip_ratio|frac_\w+)(\/|$)|\w+@|.*(_frac|clipped_ratio)(\/|$))/;

/** @param {number | null | undefined} value three significant digits, thousands separated */
export function significant(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  if (magnitude < -4 || magnitude >= 6) return value.toExponential(2).replace("e+", "e");
  return separated(value.toFixed(Math.max(0, 2 - magnitude)));
}

/** @param {number | null | undefined} value an accuracy, a reward or another number from 0 to 1: three decimals, which align */
export function score(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const text = value.toFixed(3);
  return Number(text) === 0 ? "0.000" : text;
}

/** @param {number} value a difference of scores: `+0.216`, `−0.011`, `0.000` */
export function signedScore(value) {
  const text = score(Math.abs(value));
  return Number(text) === 0 ? text : `${value < 0 ? "−" : "+"}${text}`;
}

/** @param {number | null | undefined} value a learning rate, as one types it: `4e-4`, `0.05` */
export function learningRate(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const short = Number(value.toPrecision(6));
  return value === 0 || Math.abs(value) >= 0.01 ? String(short) : short.toExponential();
}

/**
 * A value of a recorded metric, by the rule of its kind.
 * @param {string} metric
 * @param {number | null | undefined} value
 */
export function metricNumber(metric, value) {
  if (metric === "learning_rate") return learningRate(value);
  return SCORE.test(metric) ? score(value) : significant(value);
}

/** @param {number | null | undefined} value a whole number with its thousands separated */
export function count(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return separated(Math.round(value).toString());
}

/** @param {string} text a number in decimals */
function separated(text) {
  const [whole, decimals] = text.split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (decimals ? `.${decimals}` : "");
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds) || seconds < 0) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number | null | undefined} amount bytes: `512 B`, `9.8 KiB`, `982 KiB`, `1.0 MiB` */
export function size(amount) {
  if (amount === null || amount === undefined || !Number.isFinite(amount)) return "–";
  let unit = "B";
  for (const larger of ["KiB", "MiB", "GiB", "TiB"]) {
    if (Math.round(amount) < 1024) break;
    [amount, unit] = [amount / 1024, larger];
  }
  return `${unit === "B" || amount >= 99.95 ? amount.toFixed(0) : amount.toFixed(1)} ${unit}`;
}

/**
 * A name cut to leave room for another beside it; the title has the whole name.
 * @param {string} name
 */
export function cut(name) {
  return name.length > 20 ? `${name.slice(0, 12)}…${name.slice(-7)}` : name;
}

/** @param {number} unixSeconds clock time in UTC, as the server writes it */
export function clock(unixSeconds) {
  return `${new Date(unixSeconds * 1000).toISOString().slice(11, 19)}Z`;
}

/**
 * The element of this page that must be there.
 * @param {string} selector
 * @param {ParentNode} [root]
 * @returns {HTMLElement}
 */
export function must(selector, root = document) {
  const element = root.querySelector(selector);
  if (!(element instanceof HTMLElement)) throw new Error(`the page has no ${selector}`);
  return element;
}

/**
 * True if a key belongs to the field that it is pressed in.
 * @param {KeyboardEvent} event
 */
export function isTyping(event) {
  const at = event.target;
  return at instanceof HTMLElement && (at.isContentEditable || at.matches("input:not([type='checkbox'], [type='range']), select, textarea"));
}

/**
 * The content of a `json_script` block.
 * @param {string} id
 * @returns {any}
 */
export function readJson(id) {
  return JSON.parse(must(`#${id}`).textContent ?? "null");
}

/**
 * A new element with text, never markup.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} [className]
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

/**
 * Shows a state in a badge made by components/state.html.
 * @param {Element | null} badge
 * @param {string} state
 */
export function showState(badge, state) {
  if (!(badge instanceof HTMLElement) || badge.dataset.state === state) return;
  badge.dataset.state = state;
  badge.querySelector("use")?.setAttribute("href", `#icon-${state}`);
  const word = badge.querySelector("[data-state-word]");
  if (word) word.textContent = state;
}

/** Dash of an agent by its place, if colour says something else; solid is kept for what stands alone. */
/** Colours of runs, `--run-0` on: the runs after them have the same ones, dashed. */
export const NUM_SOLID = 6;
export const DASHES = [[8, 3], [2, 3], [10, 3, 2, 3], [5, 5], [14, 4], [2, 6], [8, 3, 2, 3, 2, 3], [4, 2]];
