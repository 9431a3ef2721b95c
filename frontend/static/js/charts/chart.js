/** One line chart: what it draws from the store, its values under the cursor, downloads. */

import { columnsOf, smoothed, tabulate } from "./table.js";
import { ChartFigure } from "./chart-figure.js";
import { plotOptions } from "./chart-plot.js";
import { DASHES, count, cut, metricNumber, significant } from "../lib/format.js";

/** Of a panel, by its size. @type {Record<string, number>} */
const HEIGHTS = { s: 200, m: 260, l: 380 };
/** Of the large pictures, on a wide screen and on a phone. */
const HERO_HEIGHTS = [320, 240];
/** @type {Record<string, string>} */
const BAND_WORDS = { range: "lowest to highest", ci: "95 % confidence interval of the mean" };

/**
 * @typedef {{key: string, label: string, title: string, learner: number, source: number, dash: number[], lane: number, colour: string}} DrawnLine
 *   source: -1 for an agent's own line;  lane: of a heat map's pair;  colour: its custom property, such as `--agent-0` or `--run-3`
 * @typedef {import("./series.js").ChartSpec} ChartSpec
 * @typedef {import("./view.js").ChartView} ChartView
 *
 * What a chart gets from the page: the store, the view that all charts share, and what its buttons do.
 * @typedef {{store: import("./series.js").SeriesStore, view: ChartView, xName: () => string, xUnit: () => string, xRange: () => [number, number],
 *   marks: (chart: string) => number[], zoom: (low: number, high: number) => void, unzoom: () => void,
 *   toggleLog: (chart: string) => void, setSign: (sign: import("./series.js").Sign) => void, open: (chart: string) => void, fileName: (chart: string) => string,
 *   bandText?: () => string, xWord?: () => string, hover: (step: number | null) => void, ghosts: () => import("./overlays.js").Ghost[],
 *   events: () => {checkpoints: number[], restarts: number[]}}} ChartHost bandText: what bands are, xWord: what the x axis counts, if not seeds and steps;  events: their places on the x axis;  ghosts: other runs, drawn faintly;  hover: the step under the cursor of a large picture, null without one
 */

/**
 * @param {string[]} agents
 * @param {ChartSpec} spec
 * @returns {DrawnLine[]}
 */
export function linesOf(agents, { kind, lanes }) {
  if (kind === "agent") return agents.map((name, index) => ({ key: name, label: name, title: name, learner: index, source: -1, dash: [], lane: 0, colour: `--agent-${index % 8}` }));
  return agents.flatMap((learner, a) =>
    agents.flatMap((source, b) => {
      if (a === b) return [];
      const line = { key: `${learner}\n${source}`, label: `${cut(learner)} ← ${cut(source)}`, title: `${learner} ← ${source}`, learner: a, source: b, dash: DASHES[b % DASHES.length], lane: 0, colour: `--agent-${a % 8}` };
      return lanes ? lanes.map(({ name }, lane) => ({ ...line, label: `${line.label} ${name}`, title: `${line.title}, ${name} the band`, lane })) : [line];
    }),
  );
}

export class Chart {
  /**
   * @param {ChartSpec} spec
   * @param {string[]} agents in the order of their positions, which fixes their colours
   * @param {ChartHost} host
   * @param {boolean} [isFull] the only chart of a dialog
   * @param {DrawnLine[]} [lines] in place of those of the agents
   */
  constructor(spec, agents, host, isFull = false, lines = linesOf(agents, spec)) {
    this.spec = spec;
    this.host = host;
    this.isFull = isFull;
    this.isHero = Boolean(spec.hero) && !isFull;
    this.lines = lines;
    /** Lines that the reader has switched off. @type {Set<number>} */
    this.off = new Set();
    /** @type {uPlot | null} */
    this.plot = null;
    this.layout = "";
    /** @type {import("./table.js").Column[]} */
    this.columns = [];
    /** @type {import("./table.js").Table} */
    this.table = { steps: [], x: [], values: [], numUnplaced: 0, numNonPositive: 0 };
    this.width = 320;
    /** More points than pixels. */
    this.isDense = false;
    this.isDirty = true;
    this.isSeen = isFull;
    this.parts = new ChartFigure(spec, isFull ? "full" : this.isHero ? "hero" : "panel", this.#acts());
    this.parts.setLines(lines);
    this.figure = this.parts.element;
    this.frame = this.parts.frame;
    /** @type {string} */
    this.emptyText = "no points yet";
  }

  /** What the buttons of its figure do. @returns {import("./chart-figure.js").Acts} */
  #acts() {
    const { host, spec } = this;
    return {
      toggleLog: () => host.toggleLog(spec.key),
      saveCsv: () => void this.saveCsv(),
      savePicture: () => void this.savePicture(),
      open: () => host.open(spec.key),
      setSign: (sign) => host.setSign(sign),
      toggle: (line, isOff) => {
        if (isOff) this.off.add(line);
        else this.off.delete(line);
        this.columns.forEach((column, place) => column.line === line && this.plot?.setSeries(place + 1, { show: !isOff }));
      },
    };
  }

  /** Other lines than before: they are drawn anew. @param {DrawnLine[]} lines */
  setLines(lines) {
    this.lines = lines;
    this.off.clear();
    this.plot?.destroy();
    this.plot = null;
    this.parts.setLines(lines);
    this.isDirty = true;
  }

  /** The metric of a line. @param {DrawnLine} line */
  #metric(line) {
    return this.spec.lanes ? this.spec.lanes[line.lane].metrics[this.host.view.sign] : this.spec.metric;
  }

  get isLog() {
    return !this.spec.lanes && this.host.view.log.has(this.spec.key);
  }

  get isSmoothed() {
    return this.host.view.smooth > 0 && !this.spec.raw;
  }

  /** Reads the store and draws it. */
  draw() {
    const { store } = this.host;
    this.isDirty = false;
    const lines = this.lines.map((line) => store.lines.get(this.#metric(line))?.get(line.key));
    const bands = this.lines.map((line) => (this.spec.lanes ? undefined : store.bands.get(this.spec.metric)?.get(line.key)));
    const layout = { hasBands: bands.some(Boolean), hasShades: lines.some((line) => line?.low), isSmoothed: this.isSmoothed };
    this.columns = columnsOf(this.lines.length, layout);
    this.table = tabulate(lines, bands, this.columns, { weight: this.host.view.smooth, isLog: this.isLog, place: (step) => store.place(step) });
    const data = /** @type {uPlot.AlignedData} */ ([this.table.x, ...this.table.values]);
    this.isDense = this.table.x.length > this.width;
    const name = JSON.stringify({ ...layout, isLog: this.isLog, isDot: store.width === 1, isDense: this.isDense });
    if (this.plot && name === this.layout) this.plot.setData(data, true);
    else {
      this.plot?.destroy();
      this.layout = name;
      this.plot = new uPlot(plotOptions(this, { moved: () => this.#moved(), dragged: (plot) => this.#zoomTo(plot) }), data, this.frame);
    }
    this.#annotate(layout);
  }

  /** Of any of its lines. @returns {number[]} */
  #seeds() {
    const bands = [...(this.host.store.bands.get(this.spec.metric)?.values() ?? [])];
    return [...new Set(bands.flatMap((band) => band.seeds ?? []))].sort((a, b) => a - b);
  }

  /** @param {{hasBands: boolean, hasShades: boolean}} layout */
  #annotate({ hasBands, hasShades }) {
    const { store, view } = this.host;
    const { numUnplaced, numNonPositive, steps } = this.table;
    const notes = [
      hasShades ? `Shade: lowest to highest of each ${store.width} steps.` : "",
      this.spec.lanes || !this.host.ghosts().length ? "" : `Faint: ${this.host.ghosts().map(({ name }) => name).join(", ")}.`,
      hasBands ? this.host.bandText?.() ?? `Band: ${BAND_WORDS[view.band]} over the seeds ${this.#seeds().join(", ")}.` : "",
      numNonPositive ? `${numNonPositive} points at or below 0 have no place on a log axis.` : "",
      numUnplaced ? `${numUnplaced} points have no place on this axis.` : "",
    ];
    const range = steps.length ? `${this.host.xWord?.() ?? "steps"} ${steps[0]} to ${steps[steps.length - 1]}` : "no points";
    this.parts.show({
      isLog: this.isLog,
      sign: view.sign,
      empty: steps.length ? "" : this.emptyText,
      note: notes.filter(Boolean).join(" "),
      label: `${this.lines.length} lines, ${range}; their values are listed below.`,
    });
    this.#showValues();
  }

  /** Live values, which change more often than lines are drawn. */
  showLast() {
    const { store } = this.host;
    if (!this.plot || this.isSmoothed || (this.plot.cursor.left ?? -1) >= 0) return;
    this.lines.forEach((line, index) => {
      const last = store.lines.get(this.#metric(line))?.get(line.key)?.last;
      if (last?.length) this.parts.showValue(index, metricNumber(this.#metric(line), last[last.length - 1]));
    });
  }

  #moved() {
    this.#showValues();
    const { left, idx } = /** @type {uPlot} */ (this.plot).cursor;
    if (this.isHero && !this.figure.hidden) this.host.hover((left ?? -1) >= 0 && typeof idx === "number" ? this.table.steps[idx] ?? null : null);
  }

  /** Puts the cursor on a step; null takes it away. @param {number | null} step */
  pointAt(step) {
    const { plot } = this;
    const place = step === null ? null : this.host.store.place(step);
    if (!plot || this.figure.hidden) return;
    plot.setCursor(place === null ? { left: -10, top: -10 } : { left: plot.valToPos(place, "x"), top: 8 }, false);
    this.#showValues();
  }

  /** The legend shows the values under the cursor, without one the last; the smoothed ones are beside them in grey. */
  #showValues() {
    const at = this.plot?.cursor.left !== undefined && this.plot.cursor.left >= 0 ? this.plot.cursor.idx ?? null : null;
    const { steps, x, values } = this.table;
    /** @type {Map<number, Map<string, number>>} */
    const places = new Map(this.lines.map((_, line) => [line, new Map()]));
    this.columns.forEach(({ role, line }, index) => places.get(line)?.set(role, index));
    this.lines.forEach((drawn, line) => {
      const roles = places.get(line);
      const column = values[roles?.get("raw") ?? -1] ?? [];
      const row = at ?? column.findLastIndex((value) => value !== null);
      const write = (/** @type {number | null | undefined} */ value) => metricNumber(this.#metric(drawn), value);
      let text = write(column[row]);
      const [low, high] = [values[roles?.get("low") ?? -1]?.[row], values[roles?.get("high") ?? -1]?.[row]];
      if (this.isFull && typeof low === "number" && low !== high) text += ` (${write(low)} to ${write(high)})`;
      this.parts.showValue(line, text, this.isSmoothed ? write(values[roles?.get("smooth") ?? -1]?.[row]) : "");
    });
    const place = at ?? steps.length - 1;
    const unit = this.host.xUnit();
    this.parts.showPlace(place < 0 || steps[place] === undefined ? "" : `${this.host.xWord?.() ?? "step"} ${count(steps[place])}${unit ? ` · ${significant(x[place])} ${unit}` : ""}`);
  }

  /** The lines of other runs. @returns {{name: string, dash: number[], colour: string, title: string, steps: number[], x: number[], y: number[]}[]} */
  ghostLines() {
    if (this.spec.lanes) return [];
    return this.host.ghosts().flatMap((ghost) =>
      this.lines.flatMap((line, index) => {
        const [learner, source] = line.key.split("\n");
        const key = line.source < 0 ? ghost.agent(learner, line.learner) : `${ghost.agent(learner, line.learner)}\n${ghost.agent(source, line.source)}`;
        const found = ghost.store.lines.get(this.spec.metric)?.get(key);
        if (!found || this.off.has(index)) return [];
        const values = this.isSmoothed ? smoothed(found.last, this.host.view.smooth) : found.last;
        const rows = found.steps.flatMap((step, row) => (ghost.store.place(step) === null || (this.isLog && values[row] <= 0) ? [] : [row]));
        const x = rows.map((row) => /** @type {number} */ (ghost.store.place(found.steps[row])));
        return [{ name: ghost.name, dash: ghost.dash, colour: line.colour, title: line.title, steps: rows.map((row) => found.steps[row]), x, y: rows.map((row) => values[row]) }];
      }),
    );
  }

  /** @param {uPlot} plot with a range that was just dragged */
  #zoomTo(plot) {
    const { left, width } = plot.select;
    if (width < 3) return;
    const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.host.zoom(range[0], range[1]);
  }

  get height() {
    if (this.isHero) return HERO_HEIGHTS[Number(innerWidth <= 760)];
    const lanes = this.spec.lanes ? 26 + 14 * this.lines.length : 0;
    return Math.max(lanes, this.isFull ? Math.max(240, Math.min(560, innerHeight - 320)) : HEIGHTS[this.figure.dataset.size ?? "s"]);
  }

  /** @param {number} width of the frame, in pixels */
  fit(width) {
    if (width <= 0 || width === this.width) return;
    this.width = width;
    this.plot?.setSize({ width, height: this.height });
  }

  /** Its panel may have another height. */
  resize() {
    const { height } = this;
    if (this.plot && this.plot.height !== height) this.plot.setSize({ width: this.width, height });
  }

  recolour() {
    this.plot?.redraw(false, true);
  }

  /** The drawn numbers, as the plot holds them. */
  async saveCsv() {
    const [{ save }, { csvOf, withGhosts }] = await Promise.all([import("./picture.js"), import("./csv.js")]);
    const drawn = { ...this.table, values: /** @type {(number | null)[][]} */ (this.plot?.data.slice(1) ?? []) };
    const own = csvOf(drawn, this.columns, this.lines.map((line) => line.title), { xName: this.host.xName(), isShown: (line) => !this.off.has(line) });
    save(new Blob([withGhosts(own, this.ghostLines())], { type: "text/csv" }), `${this.host.fileName(this.spec.key)}.csv`);
  }

  async savePicture() {
    if (!this.plot) return;
    const lines = this.lines.filter((_, index) => !this.off.has(index));
    const { pictureOf, save } = await import("./picture.js");
    const picture = await pictureOf(this.plot.ctx.canvas, this.spec.title, lines, this.parts.note.textContent ?? "");
    save(picture, `${this.host.fileName(this.spec.key)}.png`);
  }

  destroy() {
    this.plot?.destroy();
    this.figure.remove();
  }
}
