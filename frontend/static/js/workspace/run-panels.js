/** Panels that draw the visible rows of the list over each other: a line for each run or agent, or the mean and band of each group. */

import { Chart } from "../charts/chart.js";
import { forgetColours } from "../charts/paint.js";
import { PanelBoard } from "../charts/panel-board.js";
import { CHART_GROUPS, SeriesStore, withRewards } from "../charts/series.js";
import { readView, writeView } from "../charts/view.js";
import { DASHES, NUM_SOLID, cut, must } from "../lib/format.js";
import { distinctNames } from "../lib/short-names.js";
import { setAddress } from "./address.js";
import { isGrouped, mostRuns, scoreWord, unmeasured, visibleRows } from "./rows.js";

/** The API answers so many metrics at once. */
const AT_ONCE = 12;
/** What the x axis counts: its name in files, its unit, its word. @type {Record<string, [string, string, string]>} */
const X_NAMES = { step: ["", "", "step"], rollouts: ["rollouts generated", "", "rollouts"], tokens: ["tokens generated", "", "tokens"], elapsed: ["seconds elapsed", "", "seconds"] };
/** By the agent's place: the first is solid. */
const AGENT_DASHES = [[], ...DASHES.slice(0, 7)];

/**
 * @typedef {import("../charts/series.js").ChartSpec} ChartSpec
 * @typedef {import("../charts/chart.js").DrawnLine} DrawnLine
 */

/** Charts of single runs without those that need one run alone or that no listed run has; metrics of pairs are drawn as their mean. */
function chartGroups() {
  return withRewards(CHART_GROUPS, [], scoreWord).map((group) => ({
    ...group,
    note: group.pairs ? "Mean over the pairs of learner and source." : "",
    charts: group.charts
      .filter((spec) => !spec.lanes && !unmeasured.includes(spec.metric))
      .map((spec) => ({ ...spec, hero: false, size: /** @type {import("../charts/series.js").PanelSize} */ (spec.metric === "accuracy" ? "m" : "s") }))
      .sort((a, b) => Number(b.metric === "accuracy") - Number(a.metric === "accuracy")),
  }));
}

export class RunPanels {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.about = { panels: "" };
    this.view = readView(location.search);
    this.agents = new URLSearchParams(location.search).get("agents") === "each" ? "each" : "";
    this.store = new SeriesStore([]);
    /** @type {Chart[]} */
    this.charts = [];
    /** The lines of each metric, once they are read. @type {Map<string, DrawnLine[]>} */
    this.lines = new Map();
    /** Agents in the order in which they were met, which fixes their dashes. @type {string[]} */
    this.agentNames = [];
    /** @type {ChartSpec[]} */
    this.specs = [];
    /** @type {PanelBoard | null} */
    this.board = null;
    /** @type {Chart | null} */
    this.full = null;
    this.requests = 0;
    this.drawn = 0;
    this.isPending = false;
    this.sizes = new ResizeObserver((entries) => this.#fit(entries));
    this.sights = new IntersectionObserver((entries) => this.#see(entries), { rootMargin: "200px" });
    this.dialog = /** @type {HTMLDialogElement} */ (must("#chart-dialog"));
    this.dialog.addEventListener("close", () => this.#closed());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      forgetColours();
      for (const chart of this.charts) chart.recolour();
    });
    this.#controls();
    this.#nameRuns();
    this.#start();
  }

  /** The runs of the visible rows, and the row of each. */
  #runs() {
    return visibleRows().flatMap((row, place) => row.runs.map((run) => ({ run, place }))).slice(0, mostRuns);
  }

  /** The list of metrics for new panels is that of the visible runs. */
  #nameRuns() {
    const runs = this.#runs();
    const query = new URLSearchParams(runs.map(({ run }) => ["runs", run]));
    must("#panel-add").dataset.url = runs.length ? `${this.root.dataset.metrics}?${query}` : "";
    must("#no-lines").hidden = runs.length > 0;
  }

  /** Only what the visible runs have recorded has a panel from the start. */
  async #start() {
    const url = must("#panel-add").dataset.url;
    if (!url || !this.root.offsetParent) return; // nothing visible, or the list alone on a phone
    const answer = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!answer?.ok) return this.#say(`the metrics could not be read${answer ? `: the server answered ${answer.status}` : ""}; load the page again`);
    const recorded = new Set(/** @type {Api.RecordedMetrics} */ (await answer.json()).metrics.map(({ metric }) => metric));
    recorded.add("accuracy");
    const groups = chartGroups().map((group) => ({ ...group, charts: group.charts.filter((spec) => recorded.has(spec.metric)) }));
    this.specs = groups.flatMap((group) => group.charts);
    this.board = new PanelBoard(this, groups.filter((group) => group.charts.length));
    this.load();
  }

  /** @param {string} text */
  #say(text) {
    must("#chart-state").textContent = text;
  }

  /** @param {ChartSpec} spec */
  chartOf(spec) {
    const known = this.charts.find((one) => one.spec.key === spec.key);
    if (known) return known;
    const chart = new Chart(spec, [], this.#host(), false, this.lines.get(spec.metric) ?? []);
    chart.emptyText = "loading…";
    this.charts.push(chart);
    this.store.metrics.push(spec.metric);
    this.sizes.observe(/** @type {HTMLElement} */ (chart.frame));
    this.sights.observe(/** @type {HTMLElement} */ (chart.figure));
    return chart;
  }

  /** @param {string | null} panels */
  rearranged(panels) {
    setAddress({ panels: panels ?? "" });
    for (const chart of this.charts) chart.resize();
    this.load(true);
  }

  /** @returns {import("../charts/chart.js").ChartHost} */
  #host() {
    return {
      store: this.store,
      view: this.view,
      xName: () => X_NAMES[this.view.x][0],
      xUnit: () => X_NAMES[this.view.x][1],
      xWord: () => X_NAMES[this.view.x][2],
      xRange: () => this.#xRange(),
      bandText: () => "Band: 95 % confidence interval of the mean over the runs of a group.",
      marks: () => [],
      zoom: (low, high) => this.#setZoom(Math.max(0, Math.floor(low)), Math.max(1, Math.ceil(high))),
      unzoom: () => this.#setZoom(null, null),
      toggleLog: (chart) => {
        if (!this.view.log.delete(chart)) this.view.log.add(chart);
        this.#changed();
      },
      setSign: () => {},
      open: (chart) => this.open(chart),
      fileName: (chart) => `${chart.replace(/[^\w-]/g, "-")}-runs`,
      hover: () => {},
      ghosts: () => [],
      events: () => ({ checkpoints: [], restarts: [] }),
    };
  }

  /** @returns {[number, number]} */
  #xRange() {
    const { first, last } = this.view;
    return first !== null && last !== null ? [first, Math.max(last, first + 1)] : [0, Math.max(1, this.store.lastStep)];
  }

  /** @param {number | null} first @param {number | null} last */
  #setZoom(first, last) {
    Object.assign(this.view, { first, last });
    this.#changed();
    this.load();
  }

  /** What the view shows has changed: the address and all panels. */
  #changed() {
    setAddress(Object.fromEntries(["first", "last", "smooth", "x", "log"].map((name) => [name, new URLSearchParams(writeView(this.view, "")).get(name) ?? ""])));
    this.#showControls();
    for (const chart of this.charts) chart.isDirty = true;
    if (this.full) this.full.isDirty = true;
    this.draw();
  }

  /** Rows were switched on or off. */
  rowsChanged() {
    this.#nameRuns();
    if (!this.board) this.#start();
    else this.load();
  }

  /** Reads the metrics of the panels in sight; with `isMore` only those that are not there yet. @param {boolean} [isMore] */
  async load(isMore = false) {
    if (!isMore) {
      this.requests += 1;
      this.lines.clear();
    }
    const runs = this.#runs();
    if (!runs.length) return this.#fill([], [], []);
    const inSight = this.charts.filter((chart) => chart.isSeen || this.full?.spec.key === chart.spec.key);
    const metrics = [...new Set(inSight.map((chart) => chart.spec.metric))].filter((metric) => !this.lines.has(metric)).slice(0, AT_ONCE);
    if (!metrics.length) return;
    for (const metric of metrics) this.lines.set(metric, []); // requested
    const request = this.requests;
    const answer = await fetch(`${this.root.dataset.url}?${this.#query(runs, metrics)}`, { headers: { Accept: "application/json" } }).catch(() => null);
    if (request !== this.requests) return;
    if (!answer?.ok) {
      for (const metric of metrics) this.lines.delete(metric);
      return this.#say(answer ? `the server answered ${answer.status}; load the page again` : "the server cannot be reached");
    }
    this.#say("");
    this.#fill(metrics, /** @type {Api.OverlaidLines} */ (await answer.json()).lines, runs);
    this.load(true);
  }

  /** @param {{run: string, place: number}[]} runs @param {string[]} metrics */
  #query(runs, metrics) {
    const query = new URLSearchParams([...runs.map(({ run }) => ["runs", run]), ...metrics.map((metric) => ["metric", metric])]);
    if (isGrouped()) for (const { place } of runs) query.append("group", String(place));
    else if (this.agents) query.set("agents", this.agents);
    const { first, last, x } = this.view;
    if (x !== "step") query.set("x", x);
    if (first !== null && last !== null) {
      query.set("low", String(first));
      query.set("high", String(last));
    }
    return query;
  }

  /** @param {string[]} metrics that were read; none: all lines go @param {Api.OverlaidLine[]} answer @param {{run: string, place: number}[]} runs */
  #fill(metrics, answer, runs) {
    const rows = visibleRows();
    const names = distinctNames(rows.map(({ name }) => name));
    const all = metrics.length ? metrics : this.charts.map((chart) => chart.spec.metric);
    for (const metric of all) {
      const of = answer.filter((line) => line.metric === metric);
      const drawn = of.map((line) => {
        const place = isGrouped() ? line.group : runs[line.group].place;
        return this.#line(line, rows[place], names[place], of);
      });
      this.lines.set(metric, drawn);
      this.store.lines.set(metric, new Map(of.map((line, place) => [drawn[place].key, { steps: /** @type {number[]} */ (line.x), last: line.y, low: null, high: null }])));
      const bands = of.flatMap((line, place) => (line.low && line.high ? [/** @type {[string, any]} */ ([drawn[place].key, { steps: line.x, last: line.y, low: line.low, high: line.high }])] : []));
      this.store.bands.set(metric, new Map(bands));
      for (const chart of [...this.charts, ...(this.full ? [this.full] : [])]) {
        if (chart.spec.metric !== metric) continue;
        chart.emptyText = "no points";
        if (JSON.stringify(chart.lines) !== JSON.stringify(drawn)) chart.setLines(drawn);
        chart.isDirty = true;
      }
    }
    const ends = [...this.store.lines.values()].flatMap((lines) => [...lines.values()].map((line) => line.steps[line.steps.length - 1] ?? 0));
    this.store.lastStep = this.view.first === null ? Math.max(0, ...ends) : this.store.lastStep;
    for (const chart of this.charts) chart.isDirty = true; // the axis is common to all
    this.draw();
  }

  /** @param {Api.OverlaidLine} line @param {import("./rows.js").VisibleRow} row @param {string} short its name among the visible ones @param {Api.OverlaidLine[]} of @returns {DrawnLine} */
  #line(line, row, short, of) {
    if (line.agent && !this.agentNames.includes(line.agent)) this.agentNames.push(line.agent);
    const isSecond = row.colour >= NUM_SOLID; // the run before it in this colour is solid
    const place = this.agentNames.indexOf(line.agent) + (isSecond ? 4 : 0);
    const dash = line.agent ? AGENT_DASHES[place % AGENT_DASHES.length] : isSecond ? DASHES[0] : [];
    const name = isGrouped() ? `${row.name} (${line.runs})` : row.name;
    const own = isGrouped() ? `${short} (${line.runs})` : short;
    const title = line.agent ? `${name}, ${line.agent}` : name;
    const label = line.agent && of.length > 1 ? `${short}, ${cut(line.agent)}` : own;
    return { key: `${row.key}\n${line.agent}`, label, title, learner: row.colour, source: -1, dash, lane: 0, colour: `--run-${row.colour % NUM_SOLID}` };
  }

  /** Draws what is dirty and in sight, with the next animation frame. */
  draw() {
    if (this.isPending) return;
    this.isPending = true;
    requestAnimationFrame(() => {
      this.isPending = false;
      for (const chart of this.charts) if (chart.isSeen && (chart.isDirty || !chart.plot)) chart.draw();
      if (this.full?.isDirty) this.full.draw();
      this.root.dataset.drawn = String((this.drawn += 1));
      this.root.dataset.lines = String(this.charts[0]?.lines.length ?? 0);
    });
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #see(entries) {
    for (const { target, isIntersecting } of entries) {
      const chart = this.charts.find((one) => one.figure === target);
      if (chart) chart.isSeen = isIntersecting;
    }
    this.load(true);
    this.draw();
  }

  /** @param {ResizeObserverEntry[]} entries */
  #fit(entries) {
    for (const { target, contentRect } of entries) [...this.charts, ...(this.full ? [this.full] : [])].find((one) => one.frame === target)?.fit(Math.floor(contentRect.width));
  }

  /** @param {string} key of a panel, which is shown in full */
  open(key) {
    const chart = this.charts.find((one) => one.spec.key === key);
    if (!chart || this.full) return;
    this.full = new Chart(chart.spec, [], this.#host(), true, chart.lines);
    must(".chart-dialog-body", this.dialog).replaceChildren(/** @type {HTMLElement} */ (this.full.figure));
    this.dialog.showModal();
    this.sizes.observe(/** @type {HTMLElement} */ (this.full.frame));
    this.draw();
  }

  #closed() {
    if (!this.full) return;
    this.sizes.unobserve(/** @type {HTMLElement} */ (this.full.frame));
    this.full.destroy();
    this.full = null;
  }

  #controls() {
    const form = /** @type {HTMLFormElement} */ (must("#chart-controls"));
    const field = (/** @type {string} */ name) => /** @type {HTMLInputElement | HTMLSelectElement | null} */ (form.elements.namedItem(name));
    form.addEventListener("submit", (event) => event.preventDefault());
    field("smooth")?.addEventListener("input", () => {
      this.view.smooth = Number(field("smooth")?.value);
      this.#changed();
    });
    field("x")?.addEventListener("change", () => {
      Object.assign(this.view, { x: field("x")?.value, first: null, last: null });
      this.#changed();
      this.load();
    });
    field("agents")?.addEventListener("change", () => {
      this.agents = field("agents")?.value === "each" ? "each" : "";
      setAddress({ agents: this.agents });
      this.load();
    });
    must("[data-unzoom]", form).addEventListener("click", () => this.#setZoom(null, null));
    const agents = field("agents");
    if (agents) agents.value = this.agents;
    this.#showControls();
  }

  #showControls() {
    const form = /** @type {HTMLFormElement} */ (must("#chart-controls"));
    for (const name of /** @type {const} */ (["smooth", "x"])) {
      const field = form.elements.namedItem(name);
      if (field instanceof HTMLInputElement || field instanceof HTMLSelectElement) field.value = String(this.view[name]);
    }
    must("#smooth-shown").textContent = this.view.smooth ? this.view.smooth.toFixed(2) : "off";
    must("[data-unzoom]").toggleAttribute("disabled", this.view.first === null);
  }
}
