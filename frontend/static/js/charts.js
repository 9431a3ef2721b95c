/** The live line charts of a run: one uPlot for each chart of series.js, with one cursor over all of them. */

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { cut, significant } from "./format.js";
import { CHART_GROUPS } from "./series.js";

const HEIGHT = 168;
/** Dash of a source by its position; solid is kept for an agent alone. */
const DASHES = [[8, 3], [2, 3], [10, 3, 2, 3], [5, 5], [14, 4], [2, 6], [8, 3, 2, 3, 2, 3], [4, 2]];

/** Colours of the present scheme, looked up once. @type {Map<string, string>} */
const colours = new Map();

/**
 * The colour that a custom property has in the page's present colour scheme.
 * @param {string} property
 */
function colour(property) {
  const known = colours.get(property);
  if (known) return known;
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  probe.style.color = `var(${property})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  colours.set(property, found);
  return found;
}

/**
 * @param {string[]} agents
 * @param {"agent" | "pair"} kind
 * @returns {{key: string, label: string, title: string, learner: number, source: number, dash: number[]}[]}
 */
function lines(agents, kind) {
  if (kind === "agent") return agents.map((name, index) => ({ key: name, label: name, title: name, learner: index, source: index, dash: [] }));
  return agents.flatMap((learner, a) =>
    agents.flatMap((source, b) =>
      a === b ? [] : [{ key: `${learner}\n${source}`, label: `${cut(learner)} ← ${cut(source)}`, title: `${learner} ← ${source}`, learner: a, source: b, dash: DASHES[b] }],
    ),
  );
}

export class RunCharts {
  /**
   * @param {HTMLElement} root
   * @param {import("./series.js").SeriesStore} store
   * @param {string[]} agents in the order of their positions, which fixes their colours
   * @param {boolean} shares false: no pairs, so no sharing charts
   * @param {string[]} unmeasured metrics that this run does not have, so no charts of them
   */
  constructor(root, store, agents, shares, unmeasured) {
    this.store = store;
    this.sync = uPlot.sync("run");
    /** @type {{plot: uPlot, key: string, keys: string[], frame: HTMLElement, empty: HTMLElement}[]} */
    this.charts = [];
    /** Charts that the reader has zoomed: new points must not throw that away. @type {WeakSet<uPlot>} */
    this.zoomed = new WeakSet();
    /** Steps at which alerts were raised, by chart. @type {Map<string, number[]>} */
    this.marks = new Map();
    for (const group of CHART_GROUPS) {
      if (group.pairs && !shares) continue;
      const charts = group.charts.filter((spec) => !unmeasured.includes(spec.metric));
      this.#group(root, { ...group, charts }, agents);
    }
    this.resize = new ResizeObserver((entries) => this.#fit(entries));
    for (const chart of this.charts) this.resize.observe(chart.frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#recolour());
    this.pending = false;
    this.draw();
  }

  /**
   * @param {HTMLElement} root
   * @param {import("./series.js").ChartGroup} group
   * @param {string[]} agents
   */
  #group(root, group, agents) {
    const section = document.createElement("section");
    section.className = "chart-group";
    const title = document.createElement("h2");
    title.textContent = group.title;
    const note = document.createElement("p");
    note.className = "quiet small";
    note.textContent = group.note;
    const grid = document.createElement("div");
    grid.className = "chart-grid";
    section.append(title, note, grid);
    root.append(section);
    for (const spec of group.charts) this.#chart(grid, spec, lines(agents, spec.kind));
  }

  /**
   * @param {HTMLElement} grid
   * @param {import("./series.js").ChartSpec} spec
   * @param {{key: string, label: string, title: string, learner: number, source: number, dash: number[]}[]} drawn
   */
  #chart(grid, spec, drawn) {
    const figure = document.createElement("figure");
    figure.className = "chart";
    figure.dataset.chart = spec.key;
    figure.id = `chart-${spec.key}`;
    const caption = document.createElement("figcaption");
    const title = document.createElement("h3");
    title.textContent = spec.title;
    const help = document.createElement("p");
    help.className = "quiet small";
    help.textContent = spec.help;
    caption.append(title, help);
    const frame = document.createElement("div");
    frame.className = "chart-frame";
    const empty = document.createElement("p");
    empty.className = "chart-empty quiet small";
    empty.textContent = "no points yet";
    figure.append(caption, frame);
    grid.append(figure);
    const plot = new uPlot(this.#options(spec, drawn), [[], ...drawn.map(() => [])], frame);
    frame.append(empty);
    // Long names are cut in the legend and whole on hover.
    figure.querySelectorAll(".u-series").forEach((row, index) => {
      if (index > 0) row.setAttribute("title", drawn[index - 1].title);
    });
    this.charts.push({ plot, key: spec.key, keys: drawn.map((line) => line.key), frame, empty });
  }

  /**
   * @param {import("./series.js").ChartSpec} spec
   * @param {{key: string, label: string, title: string, learner: number, source: number, dash: number[]}[]} drawn
   * @returns {uPlot.Options}
   */
  #options(spec, drawn) {
    const axis = { stroke: () => colour("--quiet"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const range = spec.range;
    return {
      width: 320,
      height: HEIGHT,
      cursor: { sync: { key: this.sync.key, setSeries: false }, points: { size: 6 }, drag: { x: true, y: false } },
      // The legend knows two dashes; the sources alternate between them.
      legend: { live: true, markers: { dash: (_, index) => (spec.kind === "pair" ? (drawn[index - 1].source % 2 ? "dotted" : "dashed") : "solid") } },
      hooks: {
        setCursor: [showLast],
        drawAxes: spec.zero ? [drawZero] : [],
        draw: [(plot) => drawMarks(plot, this.marks.get(spec.key) ?? [])],
      },
      scales: { x: { time: false, range: (plot, low, high) => this.#steps(plot, low, high) }, y: range ? { range: () => range } : { range: (_, low, high) => padded(low, high, spec.zero) } },
      axes: [
        { ...axis, size: 26, space: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000] },
        { ...axis, size: 48, space: 28, values: (_, splits) => splits.map((split) => String(Number(split.toPrecision(3)))) },
      ],
      series: [
        { label: "step", value: (_, step) => (step === null ? "–" : String(step)) },
        ...drawn.map((line) => ({
          label: line.label,
          stroke: () => colour(`--agent-${line.learner % 8}`),
          width: 1.75,
          dash: line.dash,
          spanGaps: true,
          points: spec.points ? { show: true, size: 6 } : { size: 4 },
          value: (/** @type {uPlot} */ _, /** @type {number | null} */ value) => significant(value),
        })),
      ],
    };
  }

  /**
   * All charts show the same steps, so that the shared cursor stands at the same place; a zoom is kept as it is.
   * @param {uPlot} plot
   * @param {number | null} low
   * @param {number | null} high
   * @returns {[number, number]}
   */
  #steps(plot, low, high) {
    const steps = plot.data[0];
    const isAuto = steps.length < 2 || (low === steps[0] && high === steps[steps.length - 1]);
    if (low === null || high === null || isAuto) {
      this.zoomed.delete(plot);
      return [this.store.firstStep, Math.max(this.store.lastStep, this.store.firstStep + 1)];
    }
    this.zoomed.add(plot);
    return [low, high];
  }

  /** @param {{chart: string | null, raised_step: number}[]} alerts to be marked on the time axis of their charts */
  setMarks(alerts) {
    this.marks = new Map();
    for (const { chart, raised_step } of alerts) {
      if (chart) this.marks.set(chart, [...(this.marks.get(chart) ?? []), raised_step]);
    }
    this.draw();
  }

  /** Draws at the next animation frame what the store then holds, however often it is called before. */
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      for (const chart of this.charts) {
        const table = this.store.table(chart.key, chart.keys);
        chart.empty.hidden = table[0].length > 0;
        const isZoomed = this.zoomed.has(chart.plot);
        chart.plot.setData(/** @type {uPlot.AlignedData} */ (table), !isZoomed);
        if (isZoomed) chart.plot.redraw();
        showLast(chart.plot);
      }
    });
  }

  /** The run has ended: what has no point gets none. */
  end() {
    for (const { empty } of this.charts) empty.textContent = "no points";
  }

  /** @param {ResizeObserverEntry[]} entries */
  #fit(entries) {
    for (const { target, contentRect } of entries) {
      const chart = this.charts.find((one) => one.frame === target);
      const width = Math.floor(contentRect.width);
      if (chart && width > 0 && width !== chart.plot.width) chart.plot.setSize({ width, height: HEIGHT });
    }
  }

  #recolour() {
    colours.clear();
    for (const chart of this.charts) chart.plot.redraw(false, true);
  }
}

/**
 * A triangle on the time axis, and a thin line above it, at each step.
 * @param {uPlot} plot
 * @param {number[]} steps
 */
function drawMarks(plot, steps) {
  const { left, top, width, height } = plot.bbox;
  const size = 5 * devicePixelRatio;
  const context = plot.ctx;
  context.save();
  context.fillStyle = context.strokeStyle = colour("--amber");
  context.lineWidth = devicePixelRatio;
  for (const step of steps) {
    const x = plot.valToPos(step, "x", true);
    if (x < left || x > left + width) continue;
    context.globalAlpha = 0.45;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
    context.globalAlpha = 1;
    context.beginPath();
    context.moveTo(x, top + height - 2 * size);
    context.lineTo(x - size, top + height);
    context.lineTo(x + size, top + height);
    context.fill();
  }
  context.restore();
}

/**
 * Without a cursor over the charts, the legend shows the last values.
 * @param {uPlot} plot
 */
function showLast(plot) {
  const isAway = (plot.cursor.left ?? -1) < 0;
  const last = plot.data[0].length - 1;
  if (isAway && last >= 0) queueMicrotask(() => plot.setLegend({ idx: last }, false));
}

/**
 * A line at 0, under the lines of the agents.
 * @param {uPlot} plot
 */
function drawZero(plot) {
  const { left, width } = plot.bbox;
  const y = Math.round(plot.valToPos(0, "y", true)) + 0.5;
  plot.ctx.save();
  plot.ctx.strokeStyle = colour("--line-strong");
  plot.ctx.lineWidth = devicePixelRatio;
  plot.ctx.beginPath();
  plot.ctx.moveTo(left, y);
  plot.ctx.lineTo(left + width, y);
  plot.ctx.stroke();
  plot.ctx.restore();
}

/**
 * A range with a tenth of air around the values.
 * @param {number | null} low
 * @param {number | null} high
 * @param {boolean} [zero] 0 lies inside, whatever the values
 * @returns {[number, number]}
 */
function padded(low, high, zero) {
  if (low === null || high === null) return zero ? [-1, 1] : [0, 1];
  if (zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  const air = (high - low || Math.abs(high) || 1) / 10;
  return [low >= 0 && !zero ? Math.max(0, low - air) : low - air, high + air];
}
