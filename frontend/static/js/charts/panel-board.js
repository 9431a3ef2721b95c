/** The panels on the page: sections, the menu of each panel, search, adding a metric, saving the layout for the project. */

import { make, must } from "../lib/format.js";
import { PanelLayout, isAdded } from "./panels.js";

const MOST_LISTED = 60;
/** The buckets API answers so many metrics at once. */
const MOST_METRICS = 64;
/** @type {[import("./series.js").PanelSize, string][]} */
const SIZES = [["s", "Small"], ["m", "Medium"], ["l", "Large"]];

/**
 * @typedef {import("./series.js").ChartSpec} ChartSpec
 *
 * The charts that a board arranges: those of a run, or those of several runs. specs: the charts that are there without being added;
 * isVoid: of one that has no point and gets none.
 * @typedef {{about: {panels: string}, view: import("./view.js").ChartView, root: HTMLElement, specs: ChartSpec[], store: import("./series.js").SeriesStore,
 *   isVoid?: (spec: ChartSpec) => boolean, chartOf: (spec: ChartSpec) => import("./chart.js").Chart, draw: () => void, rearranged: (panels: string | null) => void}} BoardCharts
 * @typedef {import("./series.js").ChartGroup} ChartGroup
 * @typedef {{title: string, element: HTMLElement, grid: HTMLElement}} Section
 */

export class PanelBoard {
  /**
   * @param {BoardCharts} charts
   * @param {ChartGroup[]} groups
   */
  constructor(charts, groups) {
    this.charts = charts;
    this.groups = groups;
    this.saved = charts.about.panels;
    this.form = /** @type {HTMLFormElement} */ (must("#panel-controls"));
    this.words = /** @type {HTMLInputElement} */ (must("#panel-search"));
    const specs = charts.specs.filter((spec) => !spec.hero);
    this.layout = new PanelLayout(specs, charts.view.panels ?? this.saved);
    /** What the run has recorded; null until the list of metrics is opened. @type {Api.MetricAnswer[] | null} */
    this.metrics = null;
    this.pinned = this.#section("Pinned", "");
    this.added = this.#section("Added", "");
    /** @type {Map<string, Section>} */
    this.sections = new Map(groups.map((group) => [group.title, this.#section(group.title, group.note)]));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.words.addEventListener("input", () => this.#search());
    this.#setUpAdding();
    must("#panels-reset").addEventListener("click", () => {
      this.layout.read(this.saved);
      this.#changed();
    });
    document.querySelector("#panels-save")?.addEventListener("click", () => this.#save());
    this.arrange();
  }

  /** @param {string} title @param {string} note @returns {Section} */
  #section(title, note) {
    const element = make("section", "chart-group");
    const grid = make("div", "chart-grid");
    element.append(make("h2", "", title), ...(note ? [make("p", "quiet small", note)] : []), grid);
    element.hidden = true;
    this.charts.root.append(element);
    return { title, element, grid };
  }

  /** @param {import("./panels.js").Panel} panel */
  #sectionOf({ spec, isPinned }) {
    if (isPinned) return this.pinned;
    const group = this.groups.find((one) => one.charts.some((chart) => chart.key === spec.key));
    return (group && this.sections.get(group.title)) || this.added;
  }

  /** Puts each panel in its section, in order. Charts that are there already are only moved if they must be. */
  arrange() {
    /** @type {Map<Section, HTMLElement[]>} */
    const figures = new Map([this.pinned, this.added, ...this.sections.values()].map((section) => [section, []]));
    for (const panel of this.layout.panels) {
      const chart = this.charts.chartOf(panel.spec);
      const figure = /** @type {HTMLElement} */ (chart.figure);
      figure.dataset.size = panel.size;
      if (!figure.querySelector(".panel-menu")) this.#equip(figure, panel.spec);
      figures.get(this.#sectionOf(panel))?.push(figure);
    }
    for (const [{ grid }, inside] of figures) {
      const isSame = grid.childElementCount === inside.length && inside.every((figure, place) => grid.children[place] === figure);
      if (!isSame) grid.replaceChildren(...inside);
    }
    this.#search();
    this.#showButtons();
  }

  /** Shows the panels that are not hidden and whose title or metric has the words, which may be a regular expression. */
  #search() {
    const words = this.words.value.trim();
    let pattern = new RegExp("");
    try {
      pattern = new RegExp(words, "i");
    } catch {
      pattern = new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
    }
    let numShown = 0;
    for (const { spec, isHidden } of this.layout.panels) {
      const figure = this.charts.chartOf(spec).figure;
      if (!figure) continue;
      figure.hidden = isHidden || Boolean(this.charts.isVoid?.(spec)) || !(pattern.test(spec.title) || pattern.test(spec.metric));
      numShown += Number(!figure.hidden);
    }
    for (const { element, grid } of [this.pinned, this.added, ...this.sections.values()]) element.hidden = ![...grid.children].some((figure) => !(/** @type {HTMLElement} */ (figure).hidden));
    must("#panels-found").textContent = words ? `${numShown} panel${numShown === 1 ? "" : "s"}` : "";
    this.charts.draw();
  }

  /** The menu of a panel; its title is dragged to another panel's place. @param {HTMLElement} figure @param {import("./series.js").ChartSpec} spec */
  #equip(figure, spec) {
    const menu = document.createElement("details");
    menu.className = "menu panel-menu";
    const summary = make("summary", "chart-button", "⋯");
    summary.setAttribute("aria-label", `Panel ${spec.title}`);
    const list = make("div", "menu-list");
    menu.append(summary, list);
    menu.addEventListener("toggle", () => menu.open && this.#fill(list, menu, spec));
    figure.querySelector("figcaption")?.append(menu);
    const title = /** @type {HTMLElement} */ (figure.querySelector("h3"));
    title.draggable = true;
    title.title = "Drag to another panel's place";
    title.addEventListener("dragstart", (event) => event.dataTransfer?.setData("text/x-panel", spec.key));
    figure.addEventListener("dragover", (event) => event.dataTransfer?.types.includes("text/x-panel") && event.preventDefault());
    figure.addEventListener("drop", (event) => {
      const key = event.dataTransfer?.getData("text/x-panel");
      if (!key) return;
      event.preventDefault();
      this.layout.move(key, spec.key);
      this.#changed();
    });
  }

  /** @param {HTMLElement} list @param {HTMLDetailsElement} menu @param {import("./series.js").ChartSpec} spec */
  #fill(list, menu, spec) {
    const panel = this.layout.find(spec.key);
    if (!panel) return;
    const beside = this.layout.panels.filter((one) => !one.isHidden && this.#sectionOf(one) === this.#sectionOf(panel));
    const place = beside.indexOf(panel);
    /** @param {string} word @param {() => void} act @param {boolean} [isOn] */
    const button = (word, act, isOn) => {
      const item = make("button", "", word);
      item.type = "button";
      if (isOn !== undefined) item.setAttribute("aria-pressed", String(isOn));
      item.addEventListener("click", () => {
        menu.open = false;
        act();
        this.#changed();
      });
      return item;
    };
    const items = SIZES.map(([size, word]) => button(word, () => (panel.size = size), panel.size === size));
    items.push(button(panel.isPinned ? "Unpin" : "Pin to the top", () => (panel.isPinned = !panel.isPinned)));
    if (place > 0) items.push(button("Move earlier", () => this.layout.move(spec.key, beside[place - 1].spec.key)));
    if (place < beside.length - 1) items.push(button("Move later", () => this.layout.move(spec.key, beside[place + 1].spec.key)));
    items.push(button(isAdded(spec) ? "Remove" : "Hide", () => this.layout.hide(spec.key)));
    list.replaceChildren(...items);
  }

  #changed() {
    const { text } = this.layout;
    this.arrange();
    this.charts.rearranged(text === this.saved ? null : text);
  }

  #showButtons() {
    const isSaved = this.layout.text === this.saved;
    for (const id of ["#panels-reset", "#panels-save"]) {
      const button = document.querySelector(id);
      if (button instanceof HTMLElement) button.hidden = isSaved;
    }
  }

  /** The list of metrics and hidden panels, read when it is opened. */
  #setUpAdding() {
    const menu = /** @type {HTMLDetailsElement} */ (must("#panel-add"));
    const filter = /** @type {HTMLInputElement} */ (must("#panel-metric"));
    menu.addEventListener("toggle", async () => {
      if (!menu.open) return;
      filter.focus();
      this.#list(filter.value);
      const answer = await fetch(menu.dataset.url ?? "", { headers: { Accept: "application/json" } }).catch(() => null);
      if (answer?.ok) this.metrics = (await answer.json()).metrics;
      this.#list(filter.value);
    });
    filter.addEventListener("input", () => this.#list(filter.value));
  }

  /** @param {string} words */
  #list(words) {
    const menu = /** @type {HTMLDetailsElement} */ (must("#panel-add"));
    const needle = words.trim().toLowerCase();
    const isShown = (/** @type {Api.MetricAnswer} */ one) => this.layout.panels.some(({ spec, isHidden }) => !isHidden && !spec.lanes && spec.metric === one.metric && (spec.kind === "pair") === one.is_pair);
    const hidden = this.layout.panels.filter(({ spec, isHidden }) => isHidden && spec.lanes).map(({ spec }) => ({ title: spec.title, act: () => { const panel = this.layout.find(spec.key); if (panel) panel.isHidden = false; } }));
    const metrics = (this.metrics ?? []).filter((one) => !isShown(one)).map((one) => ({ title: `${one.metric}${one.is_pair ? " (pairs)" : ""}`, act: () => { this.layout.add(one.metric, one.is_pair); } }));
    const matches = [...hidden, ...metrics].filter(({ title }) => title.toLowerCase().includes(needle));
    const isFull = this.charts.store.metrics.length >= MOST_METRICS;
    const items = isFull ? [] : matches.slice(0, MOST_LISTED).map(({ title, act }) => {
      const item = make("button", "mono", title);
      item.type = "button";
      item.addEventListener("click", () => {
        menu.open = false;
        act();
        this.#changed();
      });
      return item;
    });
    const note = this.metrics === null ? "Loading…" : isFull ? "No more panels fit: remove one first." : matches.length ? "" : "No other recorded metric.";
    must("#panel-metrics").replaceChildren(...items, ...(note ? [make("p", "quiet small", note)] : []));
  }

  /** For everybody in the project. */
  async #save() {
    const { text } = this.layout;
    const token = /** @type {HTMLInputElement | null} */ (this.form.querySelector("[name=csrfmiddlewaretoken]"))?.value ?? "";
    const headers = { "Content-Type": "application/json", "X-CSRFToken": token };
    const answer = await fetch(must("#panel-add").dataset.url ?? "", { method: "PUT", headers, body: JSON.stringify({ panels: text }) }).catch(() => null);
    if (!answer?.ok) {
      must("#panels-found").textContent = answer ? `Not saved: the server answered ${answer.status}.` : "Not saved: the server did not answer.";
      return;
    }
    this.saved = text;
    this.#changed();
    must("#panels-found").textContent = "Saved for the project.";
  }
}
