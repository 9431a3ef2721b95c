/** The heat map of omega: one row for each ordered pair, one column for each bucket of steps. */

import { cut, make, must, significant } from "../lib/format.js";
import { canvas, pattern, shape, stepTicks } from "../lib/svg.js";

/** @typedef {import("../lib/svg.js").Line} Line */
/**
 * @typedef {Api.PairTimeline} PairLines
 * @typedef {Api.TimelineOfPairs} Timeline
 * @typedef {{agents: string[], ratio_min: number, ratio_max: number, warmup: number}} OmegaRule
 */

/**
 * The value of a bucket that lies farthest from 1: a spike must be seen.
 * @param {Line} line
 * @param {number} place
 */
function extreme(line, place) {
  const both = [(line.low ?? line.last)[place], (line.high ?? line.last)[place]];
  return Math.abs(Math.log(both[0])) > Math.abs(Math.log(both[1])) ? both[0] : both[1];
}

export class OmegaMap {
  /**
   * @param {HTMLElement} root
   * @param {OmegaRule} rule
   * @param {(step: number) => void} choose
   */
  constructor(root, rule, choose) {
    this.root = root;
    this.rule = rule;
    this.choose = choose;
    /** @type {Timeline | null} */
    this.timeline = null;
    /** @type {PairLines[]} */
    this.pairs = [];
    /** Row and column under the pointer or the keyboard. */
    this.at = { row: 0, place: 0 };
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("focus", () => this.#showReadout());
  }

  /**
   * @param {Timeline} timeline
   * @param {number | null} step
   * @param {number | null} learner whose pairs are shown; null for all
   */
  draw(timeline, step, learner) {
    this.timeline = timeline;
    this.pairs = timeline.pairs.filter((pair) => learner === null || pair.learner === learner);
    if (!this.pairs.some((pair) => pair.omega)) {
      this.root.replaceChildren(make("p", "quiet", "No value of ω yet."));
      return;
    }
    const width = Math.max(280, this.root.clientWidth);
    // Names are beside the tiles, or above them where both would have no room.
    const [labels, above] = width < 560 ? [0, 18] : [220, 0];
    const row = this.pairs.length > 8 ? 16 : 24;
    const pitch = row + above;
    const height = this.pairs.length * pitch + 20;
    const picture = canvas(width, height, "");
    const marks = { clamped: pattern(picture, "hatch", "ink"), warmup: pattern(picture, "dots", "ink") };
    const first = Math.floor(timeline.first / timeline.width);
    const columns = Math.floor(timeline.last / timeline.width) - first + 1;
    const wide = (width - labels - 1) / columns;
    const limit = this.#limit();
    this.pairs.forEach((pair, index) => {
      this.#label(picture, pair, labels || width, index * pitch, above || row);
      pair.omega?.steps.forEach((at, place) => {
        if (!pair.omega) return;
        const bucket = Math.floor(at / timeline.width);
        const where = { x: labels + (bucket - first) * wide, y: index * pitch + above, width: Math.max(1, wide - (wide > 4 ? 1 : 0)), height: row - 2 };
        const value = extreme(pair.omega, place);
        const tile = shape("rect", { ...where, class: "tile" });
        tile.style.fill = ground(value, limit);
        picture.append(tile);
        const isWarm = at <= this.rule.warmup;
        if (isWarm || pair.clamped.includes(bucket)) picture.append(shape("rect", { ...where, fill: isWarm ? marks.warmup : marks.clamped, class: "tile" }));
        tile.addEventListener("pointerenter", () => this.#moveTo(index, place));
        tile.addEventListener("click", () => this.choose(at));
      });
    });
    for (const tick of stepTicks(timeline.first, timeline.last)) {
      const middle = labels + (Math.floor(tick / timeline.width) - first + 0.5) * wide;
      picture.append(shape("text", { x: Math.min(middle, width - 4 * String(tick).length), y: height - 4, class: "tick tick-middle" }, String(tick)));
    }
    if (step !== null && step >= timeline.first && step <= timeline.last) {
      const x = labels + (Math.floor(step / timeline.width) - first) * wide;
      const boxes = above ? this.pairs.map((_, index) => [index * pitch + above, row - 2]) : [[0, this.pairs.length * row]];
      for (const [y, tall] of boxes) picture.append(shape("rect", { x: x - 1, y, width: wide + 1, height: tall, class: "cursor-box" }));
    }
    this.root.replaceChildren(picture);
    this.#legend(limit);
    if (step !== null) this.#seek(step);
    this.#showReadout();
  }

  /** The value at which the colour is full: the largest distance from 1 that is shown, at least a factor of 1.5. */
  #limit() {
    const distances = this.pairs.flatMap((pair) => (pair.omega ? pair.omega.steps.map((_, place) => Math.abs(Math.log(extreme(/** @type {Line} */ (pair.omega), place)))) : []));
    return Math.max(Math.log(1.5), ...distances);
  }

  /**
   * @param {SVGSVGElement} picture
   * @param {PairLines} pair
   * @param {number} width
   * @param {number} y
   * @param {number} height
   */
  #label(picture, pair, width, y, height) {
    const names = this.rule.agents;
    const room = Math.floor(width / 2 / 7.4) - 1;
    /** @param {string} name */
    const short = (name) => (name.length <= room ? name : width > 200 ? cut(name).slice(0, room) : `${name.slice(0, room - 1)}…`);
    [pair.learner, pair.source].forEach((place, index) => {
      const mark = shape("rect", { x: index * (width / 2), y: y + height / 2 - 5, width: 3, height: 8 });
      mark.style.fill = `var(--agent-${place % 8})`;
      const text = shape("text", { x: index * (width / 2) + 6, y: y + height / 2 + 3, class: "tick" }, `${short(names[place])}${index ? "" : " ←"}`);
      text.append(shape("title", {}, `${names[pair.learner]} ← ${names[pair.source]}`));
      picture.append(mark, text);
    });
  }

  /** @param {number} limit */
  #legend(limit) {
    const legend = must("#omega-legend");
    const picture = canvas(168, 18, "");
    for (let place = 0; place < 21; place += 1) {
      const piece = shape("rect", { x: place * 8, y: 2, width: 8, height: 14 });
      piece.style.fill = ground(Math.exp(((place - 10) / 10) * limit), limit);
      picture.append(piece);
    }
    const clamped = canvas(22, 18, "");
    const warmup = canvas(22, 18, "");
    for (const [target, kind] of /** @type {[SVGSVGElement, "hatch" | "dots"][]} */ ([[clamped, "hatch"], [warmup, "dots"]])) {
      const fill = pattern(target, kind, "ink");
      target.append(shape("rect", { x: 0, y: 2, width: 22, height: 14, class: "tile-empty" }), shape("rect", { x: 0, y: 2, width: 22, height: 14, fill }));
    }
    const parts = [make("span", "number", significant(Math.exp(-limit))), picture, make("span", "number", `${significant(Math.exp(limit))}, log axis, 1 in the middle`), clamped, make("span", "", `at the clamp, ${significant(this.rule.ratio_min)} or ${significant(this.rule.ratio_max)}, or both capabilities at the floor`)];
    if (this.rule.warmup > 0) parts.push(warmup, make("span", "", `warm-up, steps to ${this.rule.warmup}: ω is 1`));
    legend.replaceChildren(...parts);
  }

  /** @param {number} step */
  #seek(step) {
    const line = this.pairs[this.at.row]?.omega;
    if (!line || !this.timeline) return;
    const bucket = Math.floor(step / this.timeline.width);
    const width = this.timeline.width;
    const place = line.steps.findIndex((one) => Math.floor(one / width) === bucket);
    if (place >= 0) this.at.place = place;
  }

  /**
   * @param {number} row
   * @param {number} place
   */
  #moveTo(row, place) {
    this.at = { row, place };
    this.#showReadout();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const line = this.pairs[this.at.row]?.omega;
    if (!line) return;
    const moves = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] });
    if (event.key === "Enter") this.choose(line.steps[this.at.place]);
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    const row = Math.min(Math.max(this.at.row + move[0], 0), this.pairs.length - 1);
    const steps = this.pairs[row].omega?.steps.length ?? 1;
    this.#moveTo(row, Math.min(Math.max(this.at.place + move[1], 0), steps - 1));
  }

  /** The equation of the cell, with its numbers put in. */
  #showReadout() {
    const pair = this.pairs[this.at.row];
    const line = pair?.omega;
    const { timeline, rule } = this;
    if (!line || !timeline || this.at.place >= line.steps.length) return;
    const step = line.steps[this.at.place];
    const bucket = Math.floor(step / timeline.width);
    /** @param {number} agent */
    const capability = (agent) => {
      const line = timeline.capability[agent];
      const place = line ? line.steps.indexOf(step) : -1;
      return line && place >= 0 ? significant(line.last[place]) : "–";
    };
    const [learner, source] = [rule.agents[pair.learner], rule.agents[pair.source]];
    const low = (line.low ?? line.last)[this.at.place];
    const high = (line.high ?? line.last)[this.at.place];
    const hidden = low === high ? "" : `; between ${significant(low)} and ${significant(high)} in the ${timeline.width} steps of this column`;
    const flags = step <= rule.warmup ? " (warm-up: 1)" : pair.clamped.includes(bucket) ? " (at the clamp)" : "";
    must("#omega-readout").textContent = `Step ${step}: ω(${cut(source)}, ${cut(learner)}) = clip(P[${cut(source)}] / P[${cut(learner)}], ${significant(rule.ratio_min)}, ${significant(rule.ratio_max)}) = clip(${capability(pair.source)} / ${capability(pair.learner)}, …) = ${significant(line.last[this.at.place])}${flags}${hidden}`;
  }
}

/**
 * Blue where the source is stronger, orange where it is weaker; both on the page's own ground.
 * @param {number} value
 * @param {number} limit of |log value|
 */
function ground(value, limit) {
  const depth = Math.min(1, Math.abs(Math.log(value)) / limit);
  return `color-mix(in oklab, var(--${value > 1 ? "stronger" : "weaker"}) ${Math.round(depth * 100)}%, var(--even))`;
}
