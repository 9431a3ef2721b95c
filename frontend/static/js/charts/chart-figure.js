/** What stands around the drawing of a chart: title, buttons, a legend whose entries can be switched off, a note. */

import { make } from "../lib/format.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {import("./chart.js").DrawnLine} DrawnLine
 * @typedef {import("./series.js").ChartSpec} ChartSpec
 * @typedef {import("./series.js").Sign} Sign
 *
 * What its buttons do. toggle: a line was switched on or off.
 * @typedef {{toggleLog: () => void, saveCsv: () => void, savePicture: () => void, open: () => void, setSign: (sign: Sign) => void,
 *   toggle: (line: number, isOff: boolean) => void}} Acts
 */

export class ChartFigure {
  /**
   * @param {ChartSpec} spec
   * @param {"panel" | "hero" | "full"} kind full: the only chart of a dialog
   * @param {Acts} acts
   */
  constructor(spec, kind, acts) {
    this.spec = spec;
    this.acts = acts;
    const isFull = kind === "full";
    this.element = make("figure", kind === "panel" ? "chart" : `chart chart-${kind}`);
    this.element.dataset.chart = spec.key;
    if (!isFull) this.element.id = `chart-${spec.key}`;
    const caption = make("figcaption");
    caption.append(make(isFull ? "h2" : "h3", "", spec.title), isFull ? make("p", "quiet small", spec.help) : help(spec));
    this.frame = make("div", "chart-frame");
    this.frame.setAttribute("role", "img");
    this.frame.setAttribute("aria-label", `${spec.title}: not drawn yet`);
    this.empty = make("p", "chart-empty quiet small");
    this.frame.append(this.empty);
    this.legend = make("ul", "chart-legend");
    this.note = make("p", "chart-note quiet small");
    this.at = make("p", "chart-at quiet small");
    /** Where the value and the smoothed value of each line are shown. @type {HTMLElement[][]} */
    this.values = [];
    const below = make("div", "chart-below");
    below.append(this.#buttons(isFull), this.at);
    this.element.append(caption, this.frame, below, this.legend, this.note);
  }

  /** @param {boolean} isFull */
  #buttons(isFull) {
    const { acts, spec } = this;
    const row = make("div", "chart-buttons");
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", `Of the chart ${spec.title}`);
    if (spec.lanes) row.append(...this.#signs());
    else row.append((this.logButton = this.#button("Log", "Logarithmic y axis", acts.toggleLog)));
    row.append(
      this.#button("CSV", "Save exactly the numbers that are drawn, as CSV", acts.saveCsv),
      this.#button("PNG", "Save as a picture", acts.savePicture),
    );
    if (!isFull) row.append(this.#button("Full", "Show in full screen", acts.open));
    return row;
  }

  /** Of a heat map: which rollouts it counts. */
  #signs() {
    this.signs = /** @type {[Sign, string, string][]} */ ([
      ["positive", "A > 0", "Encouraging rollouts"],
      ["negative", "A < 0", "Discouraging rollouts"],
      ["all", "All", "Both signs"],
    ]).map(([sign, word, title]) => {
      const button = this.#button(word, title, () => this.acts.setSign(sign));
      button.dataset.sign = sign;
      return button;
    });
    return this.signs;
  }

  /**
   * @param {string} word
   * @param {string} title
   * @param {() => void} act
   */
  #button(word, title, act) {
    const button = make("button", "chart-button", word);
    button.type = "button";
    button.title = title;
    button.setAttribute("aria-label", `${word}, ${this.spec.title}: ${title}`); // begins with what is seen
    button.addEventListener("click", act);
    return button;
  }

  /** Other lines than before, all of them switched on. @param {DrawnLine[]} lines */
  setLines(lines) {
    this.legend.replaceChildren();
    this.values = lines.map((line, index) => this.#entry(line, index));
  }

  /**
   * @param {DrawnLine} line
   * @param {number} index
   * @returns {HTMLElement[]} where its value and its smoothed value are shown
   */
  #entry(line, index) {
    const entry = make("li");
    const button = make("button", "chart-line");
    button.type = "button";
    button.title = line.title; // long names are cut in the legend
    button.setAttribute("aria-pressed", "true");
    const mark = document.createElementNS(SVG, "svg");
    const stroke = document.createElementNS(SVG, "line");
    mark.setAttribute("aria-hidden", "true");
    if (this.spec.lanes) mark.dataset.lane = String(line.lane);
    else if (line.colour.startsWith("--run-")) mark.dataset.runColour = line.colour.slice(6);
    else mark.dataset.agent = line.colour.slice(8);
    for (const [name, value] of Object.entries({ x1: 0, y1: 5, x2: 22, y2: 5, "stroke-dasharray": this.spec.lanes ? "" : line.dash.join(" ") })) stroke.setAttribute(name, String(value));
    mark.append(stroke);
    button.append(mark, make("span", "cut", line.label));
    button.addEventListener("click", () => {
      const isOff = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!isOff));
      this.acts.toggle(index, isOff);
    });
    const value = make("span", "chart-value");
    const smooth = make("span", "chart-smooth quiet");
    smooth.title = "smoothed";
    entry.append(button, value, smooth);
    this.legend.append(entry);
    return [value, smooth];
  }

  /** @param {{isLog: boolean, sign: Sign, empty: string, note: string, label: string}} state label: the drawing in words */
  show({ isLog, sign, empty, note, label }) {
    this.empty.textContent = empty;
    this.note.textContent = note;
    this.logButton?.setAttribute("aria-pressed", String(isLog));
    for (const button of this.signs ?? []) button.setAttribute("aria-pressed", String(button.dataset.sign === sign));
    this.frame.setAttribute("aria-label", `${this.spec.title}: ${label}`);
  }

  /** @param {number} line @param {string} value @param {string} [smooth] */
  showValue(line, value, smooth) {
    const [element, smoothElement] = this.values[line];
    write(element, value);
    if (smooth !== undefined) write(smoothElement, smooth);
  }

  /** Where the cursor is, without one the last step. @param {string} text */
  showPlace(text) {
    write(this.at, text);
  }
}

/** @param {HTMLElement} element @param {string} text */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** What a chart shows, behind an "i". @param {ChartSpec} spec */
function help(spec) {
  const info = make("details", "menu chart-info");
  const mark = make("summary", "", "i");
  mark.setAttribute("aria-label", `About ${spec.title}`);
  mark.title = spec.help;
  info.append(mark, make("p", "menu-list small", spec.help));
  return info;
}
