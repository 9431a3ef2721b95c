/** The charts of a run: one cursor, one zoom and one view of all of them, stored in the page's address. */

import { Buckets } from "./buckets.js";
import { Chart } from "./chart.js";
import { make, must } from "../lib/format.js";
import { Overlays } from "./overlays.js";
import { forgetColours } from "./paint.js";
import { PanelBoard } from "./panel-board.js";
import { CHART_GROUPS, SeriesStore, metricsOf, withRewards } from "./series.js";
import { readView, writeView } from "./view.js";

/** Charts drawn within one animation frame: more would be noticed as a jerk. */
const AT_ONCE = 2;
/** Live points are drawn after this time at the latest. */
const SLOWEST_MS = 1000;
/** What the x axis counts: its name in files, its unit under a chart. @type {Record<string, [string, string]>} */
const X_NAMES = { step: ["", ""], rollouts: ["rollouts generated", "rollouts"], tokens: ["tokens generated", "tokens"], elapsed: ["seconds elapsed", "s"] };

/**
 * @typedef {{run: string, url: string, agents: string[], shares: boolean, unmeasured: string[], rewards: string[], training_sets: string[], score_word: string, panels: string}} About
 *   agents: in the order of their positions, which fixes their colours; shares: false if there are no pairs;
 *   unmeasured: metrics that this run does not have;  rewards: the names of several rewards, each with a chart;  training_sets: the names of several training sets, each with a chart;  score_word: what held-out scores are called;  panels: the layout that the project has saved.
 */

export class RunCharts {
  /**
   * @param {HTMLElement} root
   * @param {About} about
   */
  constructor(root, about) {
    this.root = root;
    this.about = about;
    this.view = readView(location.search);
    const groups = withRewards(CHART_GROUPS, about.rewards, about.score_word, about.training_sets).filter((group) => about.shares || !group.pairs);
    this.specs = groups.flatMap((group) => group.charts).filter((spec) => !about.unmeasured.includes(spec.metric));
    this.store = new SeriesStore(this.specs.flatMap(metricsOf));
    this.buckets = this.#buckets(this.store, () => {
      this.isLoaded = true;
      this.#findVoid();
      this.#showHero();
      this.#changed();
    });
    /** @type {Chart[]} */
    this.charts = [];
    /** The chart in full, with its own store, since one chart may have more points. @type {{chart: Chart, buckets: Buckets, host: import("./chart.js").ChartHost} | null} */
    this.full = null;
    /** Steps at which alerts were raised, by chart. @type {Map<string, number[]>} */
    this.marks = new Map();
    /** Steps of checkpoints, and those at which an attempt continued. @type {Set<number>} */
    this.checkpoints = new Set();
    /** @type {Set<number>} */
    this.restarts = new Set();
    this.isPending = false;
    this.isLoaded = false;
    this.isIdleDrawing = false;
    this.hasEnded = false;
    /** Keys of the panels that have no point and get none. @type {Set<string>} */
    this.voids = new Set();
    /** @type {(step: number | null) => void} */
    this.onHover = () => {};
    this.drawn = 0;
    this.drawnAt = 0;
    this.drawnStep = 0;
    this.timer = 0;
    this.sizes = new ResizeObserver((entries) => this.#fit(entries));
    // A chart that is out of sight costs nothing until it is scrolled to.
    this.sights = new IntersectionObserver((entries) => this.#see(entries), { rootMargin: "200px" });
    for (const spec of this.specs) if (spec.hero) this.#add(spec, must("#hero-charts"));
    this.board = new PanelBoard(this, groups);
    this.overlays = new Overlays(this);
    this.controls = this.#controls();
    this.dialog = /** @type {HTMLDialogElement} */ (must("#chart-dialog"));
    this.dialog.addEventListener("close", () => this.#closed());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#recolour());
    for (const button of document.querySelectorAll("[data-hero]")) button.addEventListener("click", () => this.showPicture(/** @type {HTMLElement} */ (button).dataset.hero ?? ""));
    this.#showHero();
    addEventListener("hashchange", () => this.#showTarget());
    this.#showTarget();
    addEventListener("beforeprint", () => this.#drawAll());
    this.#showControls();
  }

  /** The large picture that is not chosen is hidden: without a choice, the reward until there are two evaluations. */
  #showHero() {
    const evaluations = [...(this.store.lines.get("accuracy")?.values() ?? [])].map((line) => line.steps.length);
    const key = this.view.picture || (Math.max(0, ...evaluations) > 1 ? "accuracy" : "reward");
    for (const chart of this.charts) if (chart.isHero && chart.figure) chart.figure.hidden = chart.spec.key !== key;
    for (const button of document.querySelectorAll("[data-hero]")) button.setAttribute("aria-pressed", String(/** @type {HTMLElement} */ (button).dataset.hero === key));
  }

  /** @param {string} key of a large picture */
  showPicture(key) {
    this.view.picture = key;
    this.#remember();
    this.#showHero();
    this.#changed();
  }

  /** An alert's link leads to a chart, which may be the hidden picture. */
  #showTarget() {
    // The six charts of clipped rollouts are one heat map now: older mails name one of them.
    if (/^#chart-(lower|upper)(-positive|-negative)?$/.test(location.hash)) location.replace("#chart-clipping");
    const chart = this.charts.find((one) => one.isHero && `#chart-${one.spec.key}` === location.hash);
    if (chart?.figure?.hidden) this.showPicture(chart.spec.key);
  }

  /** @param {number | null} step under the cursor of the large picture */
  pointAt(step) {
    for (const chart of this.charts) if (chart.isHero) chart.pointAt(step);
  }

  #drawAll() {
    for (const chart of this.charts) if (this.isLoaded && (chart.isDirty || !chart.plot)) chart.draw();
  }

  /**
   * @param {SeriesStore} store
   * @param {() => void} loaded
   */
  #buckets(store, loaded) {
    return new Buckets(this.about.url, store, this.view, { loaded: () => (this.#showState(""), loaded()), failed: (why) => this.#showState(why) });
  }

  /** @param {import("./series.js").ChartSpec} spec @param {HTMLElement} [place] @returns {Chart} */
  #add(spec, place) {
    const chart = new Chart(spec, this.about.agents, this.#host(this.store));
    place?.append(/** @type {HTMLElement} */ (chart.figure));
    this.charts.push(chart);
    this.sizes.observe(/** @type {HTMLElement} */ (chart.frame));
    this.sights.observe(/** @type {HTMLElement} */ (chart.figure));
    return chart;
  }

  /** The chart of a panel, which is made at its first use; of a metric that has not been read yet, it is requested. @param {import("./series.js").ChartSpec} spec */
  chartOf(spec) {
    const chart = this.charts.find((one) => one.spec.key === spec.key);
    if (chart) return chart;
    const unread = metricsOf(spec).filter((metric) => !this.store.metrics.includes(metric));
    if (unread.length) {
      this.store.metrics.push(...unread);
      if (this.isLoaded) this.load();
      this.overlays?.load();
    }
    return this.#add(spec);
  }

  /** A panel was moved, resized or hidden: the address has it, and what came into sight is drawn. @param {string | null} panels the layout; null if it is the project's */
  rearranged(panels) {
    this.view.panels = panels;
    this.#remember();
    for (const chart of this.charts) chart.resize();
    this.draw();
  }

  /**
   * @param {SeriesStore} store
   * @returns {import("./chart.js").ChartHost}
   */
  #host(store) {
    return {
      store,
      view: this.view,
      xName: () => X_NAMES[this.view.x][0],
      xUnit: () => X_NAMES[this.view.x][1],
      xRange: () => this.#xRange(store),
      marks: (chart) => (this.marks.get(chart) ?? []).flatMap((step) => store.place(step) ?? []),
      zoom: (low, high) => this.#zoomTo(store, low, high),
      unzoom: () => this.setZoom(null, null),
      toggleLog: (chart) => this.#toggleLog(chart),
      setSign: (sign) => {
        this.view.sign = sign;
        this.#remember();
        this.#changed();
      },
      open: (chart) => this.open(chart),
      fileName: (chart) => `${chart}-${this.about.run}`,
      hover: (step) => this.onHover(step),
      ghosts: () => this.overlays.ghosts,
      events: () => {
        const places = (/** @type {Set<number>} */ steps) => [...steps].flatMap((step) => store.place(step) ?? []);
        return { checkpoints: places(this.checkpoints), restarts: places(this.restarts) };
      },
    };
  }

  /** All charts show the same range, so that the shared cursor is at the same place. @param {SeriesStore} store @returns {[number, number]} */
  #xRange(store) {
    const { first, last } = this.view;
    const isZoomed = first !== null && last !== null;
    if (!store.places) return isZoomed ? [first, Math.max(last, first + 1)] : [0, Math.max(store.lastStep, ...this.overlays.ghosts.map((ghost) => ghost.store.lastStep), 1)];
    let [low, high] = [Infinity, -Infinity];
    for (const [step, place] of store.places) {
      if (isZoomed && (step < first || step > last)) continue;
      low = Math.min(low, place);
      high = Math.max(high, place);
    }
    if (low > high) return [0, 1];
    const others = isZoomed ? [] : this.overlays.ghosts.flatMap((ghost) => [...(ghost.store.places?.values() ?? [])]);
    return isZoomed ? [low, Math.max(high, low + 1)] : [0, others.reduce((most, place) => Math.max(most, place), Math.max(high, 1))];
  }

  /** @param {SeriesStore} store @param {number} low @param {number} high in units of the x axis */
  #zoomTo(store, low, high) {
    if (!store.places) {
      this.setZoom(Math.max(0, Math.floor(low)), Math.max(0, Math.ceil(high)));
      return;
    }
    const placed = [...store.places].sort((a, b) => a[0] - b[0]);
    const first = placed.findLast(([, place]) => place <= low) ?? placed[0];
    const last = placed.find(([, place]) => place >= high) ?? placed[placed.length - 1];
    if (first && last) this.setZoom(first[0], last[0]);
  }

  /** @param {number | null} first @param {number | null} last step; null for the whole run */
  setZoom(first, last) {
    if (first === this.view.first && last === this.view.last) return;
    Object.assign(this.view, { first, last });
    this.#viewChanged();
  }

  /** The view has changed: draw the present lines in it at once, and request new ones. */
  #viewChanged() {
    this.#remember();
    this.#showControls();
    this.#changed();
    this.load();
    this.overlays.load();
    this.full?.buckets.load();
  }

  /** Another run was added or removed, or its lines have come. */
  overlaid() {
    this.#remember();
    this.#findVoid();
    this.#changed();
  }

  #remember() {
    const query = writeView(this.view, location.search);
    history.replaceState(history.state, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
  }

  /** @returns {Promise<number | null>} the seq from which the socket continues */
  load() {
    if (!this.store.points) this.#showState("loading…");
    return this.buckets.load();
  }

  /** Begin a replay: nothing is drawn until its events come. */
  begin() {
    this.hasEnded = false;
    this.voids.clear();
    this.buckets.begin();
  }

  /** A replay has reached this step. @param {number} step */
  reached(step) {
    this.buckets.limit = step;
    if (this.full) this.full.buckets.limit = step;
  }

  /** @param {import("../lib/socket.js").RunEvent[]} events */
  add(events) {
    const changed = this.buckets.add(events);
    this.full?.buckets.add(events);
    if (changed.size) this.#drawLive();
  }

  /**
   * Values are shown at once; lines are drawn again when a new step has moved them by half a pixel, or after a second.
   * All of them, since a new step moves the right end of every chart: the shared cursor is at one place.
   */
  #drawLive() {
    const [width, wait] = [(this.full?.chart ?? this.charts[0]).width, this.drawnAt + SLOWEST_MS - Date.now()];
    const { firstStep, lastStep } = this.store;
    const moved = ((lastStep - this.drawnStep) / Math.max(1, lastStep - firstStep)) * width;
    if (moved >= 0.5 || wait <= 0) this.#changed();
    else this.timer ||= setTimeout(() => this.#changed(), wait);
    for (const chart of this.charts) if (chart.isSeen && !this.full) chart.showLast();
    this.full?.chart.showLast();
  }

  /** @param {string} text about the charts' data; empty if all is well */
  #showState(text) {
    const state = must("#chart-state");
    if (state.textContent !== text) state.textContent = text;
  }

  #changed() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.drawnAt = Date.now();
    this.drawnStep = this.store.lastStep;
    for (const chart of this.charts) chart.isDirty = true;
    if (this.full) this.full.chart.isDirty = true;
    this.draw();
  }

  /** Draws what is dirty and in sight, a few charts with each animation frame, however often it is called. */
  draw() {
    if (this.isPending || !this.isLoaded) return;
    this.isPending = true;
    requestAnimationFrame(() => {
      this.isPending = false;
      const inSight = this.charts.filter((chart) => chart.isSeen && (!this.full || !chart.plot));
      if (this.full) inSight.unshift(this.full.chart);
      const due = inSight.filter((chart) => chart.isDirty);
      for (const chart of due.slice(0, AT_ONCE)) chart.draw();
      if (due.length > AT_ONCE) this.draw();
      else {
        this.root.dataset.drawn = String((this.drawn += 1));
        this.#drawUnseen();
      }
    });
  }

  /** Charts out of sight are drawn once, when the browser is idle: a print or a picture of the whole page has them all. */
  #drawUnseen() {
    const chart = this.charts.find((one) => !one.plot && !one.figure?.hidden && one.figure?.offsetParent);
    if (!chart || this.isIdleDrawing) return;
    this.isIdleDrawing = true;
    (globalThis.requestIdleCallback ?? setTimeout)(() => {
      this.isIdleDrawing = false;
      if (!chart.plot) chart.draw();
      this.#drawUnseen();
    });
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #see(entries) {
    for (const { target, isIntersecting } of entries) {
      const chart = this.charts.find((one) => one.figure === target);
      if (chart) chart.isSeen = isIntersecting;
    }
    this.draw();
  }

  /** @param {ResizeObserverEntry[]} entries */
  #fit(entries) {
    for (const { target, contentRect } of entries) {
      const all = this.full ? [...this.charts, this.full.chart] : this.charts;
      all.find((one) => one.frame === target)?.fit(Math.floor(contentRect.width));
    }
  }

  #recolour() {
    forgetColours();
    for (const chart of this.charts) chart.recolour();
    this.full?.chart.recolour();
  }

  /** @param {{chart: string | null, raised_step: number}[]} alerts to be marked on the x axis of their charts */
  setMarks(alerts) {
    this.marks = new Map();
    for (const { chart, raised_step } of alerts) {
      if (chart) this.marks.set(chart, [...(this.marks.get(chart) ?? []), raised_step]);
    }
    this.#changed();
  }

  /** Checkpoints and restarts among these events are marked in the large pictures. @param {import("../lib/socket.js").RunEvent[]} events */
  note(events) {
    for (const { type, step, attempt } of events) {
      if (type === "checkpoint" && step) this.checkpoints.add(step);
      if (type === "started" && attempt > 1) this.restarts.add(step ?? 0);
    }
    for (const chart of this.charts) if (chart.isHero) chart.plot?.redraw(false);
  }

  /** The run has ended: what has no point gets none. */
  end() {
    this.hasEnded = true;
    for (const chart of this.charts) chart.emptyText = "no points";
    this.#findVoid();
    this.#changed();
  }

  /** Once the run has ended, panels without a point of it or of a run over it are left out; not those that a reader added. */
  #findVoid() {
    if (!this.hasEnded || !this.isLoaded || this.view.first !== null) return;
    const stores = [this.store, ...this.overlays.ghosts.map((ghost) => ghost.store)];
    const hasPoint = (/** @type {string} */ metric) => stores.some(({ lines }) => [...(lines.get(metric)?.values() ?? [])].some((line) => line.steps.length > 0));
    const keys = this.specs.filter((spec) => !spec.hero && !metricsOf(spec).some(hasPoint)).map((spec) => spec.key);
    if (keys.join() === [...this.voids].join()) return;
    this.voids = new Set(keys);
    this.board.arrange();
  }

  /** @param {import("./series.js").ChartSpec} spec */
  isVoid(spec) {
    return this.voids.has(spec.key);
  }

  /** @param {string} chart */
  #toggleLog(chart) {
    if (!this.view.log.delete(chart)) this.view.log.add(chart);
    this.#remember();
    this.#changed();
  }

  /** Opens the chart that the address names. */
  restore() {
    if (this.view.full) this.open(this.view.full);
  }

  /** Shows one chart in full, with as many points as an answer may hold. @param {string} key */
  open(key) {
    const spec = this.charts.find((one) => one.spec.key === key)?.spec;
    if (!spec || this.full) return;
    const store = new SeriesStore(metricsOf(spec));
    const host = this.#host(store);
    const chart = new Chart(spec, this.about.agents, host, true);
    this.full = { chart, host, buckets: this.#buckets(store, () => this.#changed()) };
    must(".chart-dialog-body", this.dialog).replaceChildren(/** @type {HTMLElement} */ (chart.figure));
    this.dialog.showModal();
    this.sizes.observe(/** @type {HTMLElement} */ (chart.frame));
    this.view.full = key;
    this.#remember();
    this.full.buckets.load();
  }

  #closed() {
    if (!this.full) return;
    this.full.buckets.isClosed = true;
    this.sizes.unobserve(/** @type {HTMLElement} */ (this.full.chart.frame));
    this.full.chart.destroy();
    this.full = null;
    this.view.full = "";
    this.#remember();
    this.draw();
  }

  /** The controls over all charts, which the template has drawn. */
  #controls() {
    const form = /** @type {HTMLFormElement} */ (must("#chart-controls"));
    /** @param {string} name */
    const field = (name) => /** @type {HTMLInputElement | HTMLSelectElement | null} */ (form.elements.namedItem(name));
    form.addEventListener("submit", (event) => event.preventDefault());
    field("smooth")?.addEventListener("input", () => {
      this.view.smooth = Number(field("smooth")?.value);
      this.#remember();
      this.#showControls();
      this.#changed();
    });
    for (const name of ["x", "band"]) {
      field(name)?.addEventListener("change", () => {
        Object.assign(this.view, { [name]: field(name)?.value });
        this.#viewChanged();
      });
    }
    // Both ends are read together, once the reader has left them or presses Enter.
    const ends = [field("first"), field("last")];
    const zoom = () => this.#zoomAsTyped(...ends.map((end) => end?.value ?? ""));
    for (const end of ends) {
      end?.addEventListener("keydown", (event) => {
        if (/** @type {KeyboardEvent} */ (event).key === "Enter") zoom();
      });
      end?.addEventListener("focusout", (event) => {
        const next = /** @type {FocusEvent} */ (event).relatedTarget;
        if (!ends.some((one) => one === next)) zoom();
      });
    }
    must("[data-unzoom]", form).addEventListener("click", () => this.setZoom(null, null));
    return field;
  }

  /** @param {string[]} typed first and last step; an empty one is the end of the run */
  #zoomAsTyped(...typed) {
    if (!typed.some(Boolean)) return this.setZoom(null, null);
    const [first, last] = [Number(typed[0] || 0), Number(typed[1] || this.store.lastStep)].map((end) => Math.max(0, Math.min(2 ** 31 - 1, Math.round(end))));
    return this.setZoom(Math.min(first, last), Math.max(first, last));
  }

  #showControls() {
    const { first, last, smooth, x, band } = this.view;
    const values = { first: first ?? "", last: last ?? "", smooth, x, band };
    for (const [name, value] of Object.entries(values)) {
      const field = this.controls(name);
      if (field && field.value !== String(value)) field.value = String(value);
    }
    must("#smooth-shown").textContent = smooth ? smooth.toFixed(2) : "off";
    must("[data-unzoom]").toggleAttribute("disabled", first === null);
  }
}
