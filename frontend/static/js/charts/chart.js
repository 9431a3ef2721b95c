/** One line chart: its figure with buttons, the uPlot drawing, a legend whose entries can be switched off, downloads. */

import { columnsOf, csvOf, smoothed, tabulate, withGhosts } from "./table.js";
import { DASHES, count, cut, make, metricNumber, significant } from "../lib/format.js";
import { colour, drawBand, drawBars, drawEvents, drawGhost, drawLane, drawMarks, drawZero, padded } from "./paint.js";

/** Of a panel, by its size. @type {Record<string, number>} */
const HEIGHTS = { s: 200, m: 260, l: 380 };
/** Of the large pictures, on a wide screen and on a phone. */
const HERO_HEIGHTS = [320, 240];
/** Whole steps, rollouts, tokens and seconds. */
const INCREMENTS = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
/** Of the lanes above and below the band. */
const LANE_COLOURS = ["--blue", "--amber"];
/** Pixels beside the names of a heat map's pairs, and of one character of them. */
const [AXIS_PAD, CHARACTER] = [16, 6.2];
const SVG = "http://www.w3.org/2000/svg";
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
    this.#build();
  }

  #build() {
    const { spec } = this;
    this.figure = make("figure", this.isFull ? "chart chart-full" : this.isHero ? "chart chart-hero" : "chart");
    this.figure.dataset.chart = spec.key;
    if (!this.isFull) this.figure.id = `chart-${spec.key}`;
    const caption = make("figcaption");
    caption.append(make(this.isFull ? "h2" : "h3", "", spec.title), this.isFull ? make("p", "quiet small", spec.help) : help(spec));
    this.frame = make("div", "chart-frame");
    this.frame.setAttribute("role", "img");
    this.frame.setAttribute("aria-label", `${spec.title}: not drawn yet`);
    this.empty = make("p", "chart-empty quiet small");
    /** @type {string} */
    this.emptyText = "no points yet";
    this.frame.append(this.empty);
    this.legend = make("ul", "chart-legend");
    this.values = this.lines.map((line, index) => this.#entry(line, index));
    this.note = make("p", "chart-note quiet small");
    this.at = make("p", "chart-at quiet small");
    const below = make("div", "chart-below");
    below.append(this.#buttons(), this.at);
    this.figure.append(caption, this.frame, below, this.legend, this.note);
  }

  /** Other lines than before: they are drawn anew. @param {DrawnLine[]} lines */
  setLines(lines) {
    this.lines = lines;
    this.off.clear();
    this.plot?.destroy();
    this.plot = null;
    this.legend?.replaceChildren();
    this.values = this.lines.map((line, index) => this.#entry(line, index));
    this.isDirty = true;
  }

  #buttons() {
    const row = make("div", "chart-buttons");
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", `Of the chart ${this.spec.title}`);
    if (this.spec.lanes) row.append(...this.#signs());
    else row.append((this.logButton = this.#button("Log", "Logarithmic y axis", () => this.host.toggleLog(this.spec.key))));
    row.append(
      this.#button("CSV", "Save exactly the numbers that are drawn, as CSV", () => this.saveCsv()),
      this.#button("PNG", "Save as a picture", () => this.savePicture()),
    );
    if (!this.isFull) row.append(this.#button("Full", "Show in full screen", () => this.host.open(this.spec.key)));
    return row;
  }

  /** Of a heat map: which rollouts it counts. */
  #signs() {
    this.signs = /** @type {[import("./series.js").Sign, string, string][]} */ ([
      ["positive", "A > 0", "Encouraging rollouts"],
      ["negative", "A < 0", "Discouraging rollouts"],
      ["all", "All", "Both signs"],
    ]).map(([sign, word, title]) => {
      const button = this.#button(word, title, () => this.host.setSign(sign));
      button.dataset.sign = sign;
      return button;
    });
    return this.signs;
  }

  /** The metric of a line. @param {DrawnLine} line */
  #metric(line) {
    return this.spec.lanes ? this.spec.lanes[line.lane].metrics[this.host.view.sign] : this.spec.metric;
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
      if (!this.off.delete(index)) this.off.add(index);
      button.setAttribute("aria-pressed", String(!this.off.has(index)));
      this.columns.forEach((column, place) => column.line === index && this.plot?.setSeries(place + 1, { show: !this.off.has(index) }));
    });
    const value = make("span", "chart-value");
    const smooth = make("span", "chart-smooth quiet");
    smooth.title = "smoothed";
    entry.append(button, value, smooth);
    this.legend?.append(entry);
    return [value, smooth];
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
      this.plot = new uPlot(this.#options(layout), data, this.frame);
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
    if (this.empty) this.empty.textContent = steps.length ? "" : this.emptyText;
    const notes = [
      hasShades ? `Shade: lowest to highest of each ${store.width} steps.` : "",
      this.spec.lanes || !this.host.ghosts().length ? "" : `Faint: ${this.host.ghosts().map(({ name }) => name).join(", ")}.`,
      hasBands ? this.host.bandText?.() ?? `Band: ${BAND_WORDS[view.band]} over the seeds ${this.#seeds().join(", ")}.` : "",
      numNonPositive ? `${numNonPositive} points at or below 0 have no place on a log axis.` : "",
      numUnplaced ? `${numUnplaced} points have no place on this axis.` : "",
    ];
    if (this.note) this.note.textContent = notes.filter(Boolean).join(" ");
    this.logButton?.setAttribute("aria-pressed", String(this.isLog));
    for (const button of this.signs ?? []) button.setAttribute("aria-pressed", String(button.dataset.sign === view.sign));
    const range = steps.length ? `${this.host.xWord?.() ?? "steps"} ${steps[0]} to ${steps[steps.length - 1]}` : "no points";
    this.frame?.setAttribute("aria-label", `${this.spec.title}: ${this.lines.length} lines, ${range}; their values are listed below.`);
    this.#showValues();
  }

  /** Live values, which change more often than lines are drawn. */
  showLast() {
    const { store } = this.host;
    if (!this.plot || this.isSmoothed || (this.plot.cursor.left ?? -1) >= 0) return;
    this.lines.forEach((line, index) => {
      const last = store.lines.get(this.#metric(line))?.get(line.key)?.last;
      if (last?.length && this.values) this.values[index][0].textContent = metricNumber(this.#metric(line), last[last.length - 1]);
    });
  }

  #moved() {
    this.#showValues();
    const { left, idx } = /** @type {uPlot} */ (this.plot).cursor;
    if (this.isHero && !this.figure?.hidden) this.host.hover((left ?? -1) >= 0 && typeof idx === "number" ? this.table.steps[idx] ?? null : null);
  }

  /** Puts the cursor on a step; null takes it away. @param {number | null} step */
  pointAt(step) {
    const { plot } = this;
    const place = step === null ? null : this.host.store.place(step);
    if (!plot || this.figure?.hidden) return;
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
    this.values?.forEach(([element, smooth], line) => {
      const roles = places.get(line);
      const column = values[roles?.get("raw") ?? -1] ?? [];
      const row = at ?? column.findLastIndex((value) => value !== null);
      const write = (/** @type {number | null | undefined} */ value) => metricNumber(this.#metric(this.lines[line]), value);
      let text = write(column[row]);
      const [low, high] = [values[roles?.get("low") ?? -1]?.[row], values[roles?.get("high") ?? -1]?.[row]];
      if (this.isFull && typeof low === "number" && low !== high) text += ` (${write(low)} to ${write(high)})`;
      if (element.textContent !== text) element.textContent = text;
      const smoothText = this.isSmoothed ? write(values[roles?.get("smooth") ?? -1]?.[row]) : "";
      if (smooth.textContent !== smoothText) smooth.textContent = smoothText;
    });
    const place = at ?? steps.length - 1;
    const unit = this.host.xUnit();
    const text = place < 0 || steps[place] === undefined ? "" : `${this.host.xWord?.() ?? "step"} ${count(steps[place])}${unit ? ` · ${significant(x[place])} ${unit}` : ""}`;
    if (this.at && this.at.textContent !== text) this.at.textContent = text;
  }

  /**
   * @param {{hasBands: boolean, hasShades: boolean, isSmoothed: boolean}} layout
   * @returns {uPlot.Options}
   */
  #options({ isSmoothed }) {
    const axis = { stroke: () => colour("--quiet"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false }, font: "11px Inter, system-ui, sans-serif" };
    const { spec, host } = this;
    return {
      width: this.width,
      height: this.#height(),
      legend: { show: false },
      cursor: {
        // Only the cursor's place is shared; a drag zooms all charts by their common range.
        sync: { key: "run", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        points: { size: 6 },
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => (host.unzoom(), null) },
      },
      hooks: {
        setCursor: [() => this.#moved()],
        setSelect: [(plot) => this.#zoomTo(plot)],
        drawAxes: [(plot) => (spec.lanes ? this.#drawLanes(plot) : (this.#drawShades(plot), this.#drawGhosts(plot))), ...(spec.zero ? [drawZero] : [])],
        draw: [(plot) => drawMarks(plot, host.marks(spec.key)), ...(spec.hero ? [(/** @type {uPlot} */ plot) => drawEvents(plot, host.events())] : [])],
      },
      scales: { x: { time: false, range: () => host.xRange() }, y: this.#yScale() },
      axes: [
        { ...axis, size: 26, space: this.isFull ? 80 : 48, incrs: INCREMENTS, values: (_, splits) => splits.map(short) },
        spec.lanes ? this.#laneAxis(axis) : { ...axis, size: 48, space: 28, ...(this.isLog ? {} : { values: (/** @type {uPlot} */ _, /** @type {number[]} */ splits) => splits.map((split) => String(Number(split.toPrecision(3)))) }) },
      ],
      series: [{}, ...this.columns.map((column) => this.#series(column, isSmoothed))],
    };
  }

  /** @returns {uPlot.Scale} */
  #yScale() {
    const { range, zero, lanes } = this.spec;
    if (lanes) return { range: [0, this.lines.length] };
    if (this.isLog) return { distr: 3, log: 10, range: (_, low, high) => (low === null || high === null || !(low > 0) ? [0.1, 1] : uPlot.rangeLog(low, high, 10, false)) };
    return { range: range ? () => range : (_, low, high) => padded(...this.#withGhosts(low, high), zero) };
  }

  /**
   * @param {import("./table.js").Column} column
   * @param {boolean} isSmoothed then the raw line is faint
   * @returns {uPlot.Series}
   */
  #series({ role, line }, isSmoothed) {
    const { colour: own, dash } = this.lines[line];
    const show = !this.off.has(line);
    // Shades and bands are painted by drawShades; as series they only take part in the y axis' range.
    if ((role !== "raw" && role !== "smooth") || this.spec.lanes) return { show, paths: () => null, points: { show: false } };
    const isFaint = role === "raw" && isSmoothed;
    const isDotted = this.spec.points && role === "raw" && this.host.store.width === 1;
    // One pixel of the device is painted in a thirtieth of the time of a wider line, and of a dense one shows more.
    const thin = this.isDense ? 1 / devicePixelRatio : 1.75;
    return {
      show,
      stroke: () => colour(own, isFaint ? 35 : 100),
      width: isFaint ? Math.min(1, thin) : role === "smooth" ? 2.25 : thin,
      dash: isFaint ? [] : dash,
      spanGaps: true,
      points: isDotted ? { show: true, size: 6, stroke: () => colour(own), fill: () => colour("--surface") } : { show: (plot) => plot.data[0].length === 1, size: 5 },
    };
  }

  /** The lines of other runs. @returns {{name: string, dash: number[], colour: string, title: string, steps: number[], x: number[], y: number[]}[]} */
  #ghostLines() {
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

  /** The range of the y axis with the lines of other runs. @param {number | null} low @param {number | null} high @returns {[number | null, number | null]} */
  #withGhosts(low, high) {
    const [first, last] = this.host.xRange();
    for (const { x, y } of this.#ghostLines()) {
      y.forEach((value, row) => {
        if (x[row] < first || x[row] > last) return;
        low = Math.min(low ?? value, value);
        high = Math.max(high ?? value, value);
      });
    }
    return [low, high];
  }

  /** @param {uPlot} plot */
  #drawGhosts(plot) {
    for (const { x, y, dash, colour: own } of this.#ghostLines()) drawGhost(plot, x, y, dash, colour(own, 50));
  }

  /** The y axis of a heat map: the name of each pair at the middle of its lanes. @param {uPlot.Axis} axis @returns {uPlot.Axis} */
  #laneAxis(axis) {
    const { lines } = this;
    const lanes = this.spec.lanes?.length ?? 1;
    const middles = Array.from({ length: lines.length / lanes }, (_, pair) => lines.length - (pair + 0.5) * lanes);
    const pairs = middles.map((_, pair) => lines[pair * lanes].key.split("\n"));
    const widest = Math.max(0, ...pairs.map(([learner, source]) => cut(learner).length + cut(source).length + 3));
    const size = () => Math.min(0.4 * this.width, AXIS_PAD + CHARACTER * widest);
    // On a narrow screen both names are shortened alike.
    const most = () => Math.max(4, Math.floor(((size() - AXIS_PAD) / CHARACTER - 3) / 2));
    const short = (/** @type {string} */ name) => (name.length > most() && cut(name).length > most() ? `${name.slice(0, most() - 3)}…${name.slice(-2)}` : cut(name));
    return { ...axis, grid: { show: false }, size, splits: () => middles, values: () => pairs.map((names) => names.map(short).join(" ← ")) };
  }

  /** A heat map: of each pair two lanes, above the band and below it. @param {uPlot} plot */
  #drawLanes(plot) {
    const { x, values } = this.table;
    this.columns.forEach(({ role, line }, index) => {
      if (role !== "raw" || this.off.has(line)) return;
      const top = this.lines.length - line;
      const isFirst = this.lines[line].lane === 0;
      drawLane(plot, x, values[index], [top - (isFirst ? 0.12 : 0), top - 1 + (isFirst ? 0.04 : 0.12)], LANE_COLOURS[this.lines[line].lane]);
    });
  }

  /** The bands over seeds, and over them the shades of what buckets hide. @param {uPlot} plot */
  #drawShades(plot) {
    const { x, values } = this.table;
    this.columns.forEach(({ role, line }, index) => {
      if (this.off.has(line) || (role !== "low" && role !== "seeds-low")) return;
      const upper = this.columns.findIndex((column) => column.line === line && column.role === role.replace("low", "high"));
      const fill = colour(this.lines[line].colour, role === "low" ? 55 : 16);
      (role === "low" ? drawBars : drawBand)(plot, x, values[index], values[upper], fill);
    });
  }

  /** @param {uPlot} plot with a range that was just dragged */
  #zoomTo(plot) {
    const { left, width } = plot.select;
    if (width < 3) return;
    const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.host.zoom(range[0], range[1]);
  }

  #height() {
    if (this.isHero) return HERO_HEIGHTS[Number(innerWidth <= 760)];
    const lanes = this.spec.lanes ? 26 + 14 * this.lines.length : 0;
    return Math.max(lanes, this.isFull ? Math.max(240, Math.min(560, innerHeight - 320)) : HEIGHTS[this.figure?.dataset.size ?? "s"]);
  }

  /** @param {number} width of the frame, in pixels */
  fit(width) {
    if (width <= 0 || width === this.width) return;
    this.width = width;
    this.plot?.setSize({ width, height: this.#height() });
  }

  /** Its panel may have another height. */
  resize() {
    const height = this.#height();
    if (this.plot && this.plot.height !== height) this.plot.setSize({ width: this.width, height });
  }

  recolour() {
    this.plot?.redraw(false, true);
  }

  /** The drawn numbers, as the plot holds them. */
  csv() {
    const drawn = { ...this.table, values: /** @type {(number | null)[][]} */ (this.plot?.data.slice(1) ?? []) };
    const own = csvOf(drawn, this.columns, this.lines.map((line) => line.title), { xName: this.host.xName(), isShown: (line) => !this.off.has(line) });
    return withGhosts(own, this.#ghostLines());
  }

  async saveCsv() {
    const { save } = await import("./picture.js");
    save(new Blob([this.csv()], { type: "text/csv" }), `${this.host.fileName(this.spec.key)}.csv`);
  }

  async savePicture() {
    if (!this.plot) return;
    const lines = this.lines.filter((_, index) => !this.off.has(index));
    const { pictureOf, save } = await import("./picture.js");
    const picture = await pictureOf(this.plot.ctx.canvas, this.spec.title, lines, this.note?.textContent ?? "");
    save(picture, `${this.host.fileName(this.spec.key)}.png`);
  }

  destroy() {
    this.plot?.destroy();
    this.figure?.remove();
  }
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

/** @param {number} value on an axis of counts */
function short(value) {
  for (const [unit, size] of /** @type {[string, number][]} */ ([["G", 1e9], ["M", 1e6], ["k", 1e3]])) {
    if (Math.abs(value) >= size * 10) return `${Number((value / size).toPrecision(4))}${unit}`;
  }
  return String(Number(value.toPrecision(6)));
}
