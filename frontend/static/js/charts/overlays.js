/** Other runs behind the lines of a run: its parent, the baseline of its sweep, or any other, chosen by chips. */

import { Buckets } from "./buckets.js";
import { make, must, readJson } from "../lib/format.js";
import { SeriesStore } from "./series.js";
import { MOST_OVERLAYS } from "./view.js";

const SVG = "http://www.w3.org/2000/svg";
/** Of the first run, the second, ... */
const DASHES = [[6, 4], [2, 3], [10, 3, 2, 3], [14, 5]];
const LISTED = 20;

/**
 * A run that is drawn behind. agent: the name there of an agent of this run, by its name or else its place.
 * @typedef {{id: string, name: string, dash: number[], store: SeriesStore, agent: (name: string, place: number) => string}} Ghost
 * @typedef {{id: string, name: string, relation: string}} Suggestion
 */

export class Overlays {
  /** @param {import("./charts.js").RunCharts} charts */
  constructor(charts) {
    this.charts = charts;
    /** @type {Suggestion[]} */
    this.suggestions = readJson("overlay-data");
    /** In the order of the address. @type {Map<string, Ghost & {buckets: Buckets}>} */
    this.byRun = new Map();
    const baseline = this.suggestions.find(({ relation }) => relation === "baseline");
    const { view } = charts;
    if (baseline && !view.isAlone && !view.overlays.length) view.overlays.push(baseline.id);
    this.#setUpSearch();
    this.#showChips();
    for (const id of this.charts.view.overlays) this.#fetch(id);
  }

  /** Those whose lines have come. @returns {Ghost[]} */
  get ghosts() {
    return this.charts.view.overlays.flatMap((id) => this.byRun.get(id) ?? []);
  }

  /** The view has changed. */
  load() {
    for (const { buckets } of this.byRun.values()) buckets.load();
  }

  /** @param {string} id */
  add(id) {
    const { overlays } = this.charts.view;
    if (overlays.includes(id) || overlays.length >= MOST_OVERLAYS) return;
    overlays.push(id);
    this.#showChips();
    this.charts.overlaid();
    this.#fetch(id);
  }

  /** @param {string} id */
  remove(id) {
    const { view } = this.charts;
    view.overlays = view.overlays.filter((one) => one !== id);
    view.isAlone = !view.overlays.length && this.suggestions.some(({ relation }) => relation === "baseline");
    const ghost = this.byRun.get(id);
    if (ghost) ghost.buckets.isClosed = true;
    this.byRun.delete(id);
    this.#showChips();
    this.charts.overlaid();
  }

  /** @param {string} id */
  async #fetch(id) {
    const answer = await fetch(`${must("#overlays").dataset.runs}/${id}`, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!this.charts.view.overlays.includes(id)) return;
    if (!answer?.ok) {
      must("#overlay-state").textContent = answer?.status === 404 ? "A run to overlay does not exist, or you have no access." : "A run to overlay could not be read.";
      this.remove(id);
      return;
    }
    must("#overlay-state").textContent = "";
    const run = /** @type {Api.RunAnswer} */ (await answer.json());
    const agents = /** @type {{name: string}[]} */ (run.spec.agents).map(({ name }) => name);
    const store = new SeriesStore(this.charts.store.metrics);
    const on = { loaded: () => this.charts.overlaid(), failed: (/** @type {string} */ why) => (must("#overlay-state").textContent = why) };
    const buckets = new Buckets(this.charts.about.url.replace(this.charts.about.run, id), store, this.charts.view, on);
    const used = [...this.byRun.values()].map((ghost) => ghost.dash);
    const dash = DASHES.find((one) => !used.includes(one)) ?? DASHES[0];
    this.byRun.set(id, { id, name: run.name, dash, store, buckets, agent: (name, place) => (agents.includes(name) ? name : agents[place] ?? "") });
    this.#showChips();
    buckets.load();
  }

  #showChips() {
    const { overlays } = this.charts.view;
    const shown = overlays.map((id) => {
      const ghost = this.byRun.get(id);
      const name = ghost?.name ?? this.suggestions.find((one) => one.id === id)?.name ?? "loading…";
      const chip = this.#chip(`${name} ×`, () => this.remove(id));
      chip.setAttribute("aria-pressed", "true");
      chip.setAttribute("aria-label", `Remove the overlay ${name}`);
      const mark = document.createElementNS(SVG, "svg");
      const line = document.createElementNS(SVG, "line");
      mark.setAttribute("aria-hidden", "true");
      for (const [key, value] of Object.entries({ x1: 0, y1: 5, x2: 22, y2: 5, "stroke-dasharray": ghost?.dash.join(" ") ?? "" })) line.setAttribute(key, String(value));
      mark.append(line);
      chip.prepend(mark);
      return chip;
    });
    const offered = this.suggestions
      .filter(({ id }) => !overlays.includes(id))
      .map(({ id, name, relation }) => this.#chip(`+ ${relation === "baseline" ? "Baseline" : `${relation[0].toUpperCase()}${relation.slice(1)}`}: ${name}`, () => this.add(id)));
    must("#overlay-chips").replaceChildren(...shown, ...(overlays.length < MOST_OVERLAYS ? offered : []));
    must("#overlay-add").hidden = overlays.length >= MOST_OVERLAYS;
  }

  /** @param {string} text @param {() => void} act */
  #chip(text, act) {
    const chip = make("button", "filter", text);
    chip.type = "button";
    chip.addEventListener("click", act);
    return chip;
  }

  #setUpSearch() {
    const menu = /** @type {HTMLDetailsElement} */ (must("#overlay-add"));
    const words = /** @type {HTMLInputElement} */ (must("#overlay-name"));
    let newest = 0;
    const look = async () => {
      const mine = (newest += 1);
      const runs = await this.#find(words.value.trim());
      if (mine !== newest) return; // more was typed meanwhile
      const items = runs.filter(({ id }) => id !== this.charts.about.run && !this.charts.view.overlays.includes(id)).map(({ id, name }) => {
        const item = make("button", "", name);
        item.type = "button";
        item.addEventListener("click", () => {
          menu.open = false;
          this.add(id);
        });
        return item;
      });
      must("#overlay-found").replaceChildren(...(items.length ? items : [make("p", "quiet small", "No other run.")]));
    };
    menu.addEventListener("toggle", () => {
      if (!menu.open) return;
      words.focus();
      look();
    });
    words.addEventListener("input", look);
  }

  /** Runs with this in their name; the newest without words. @param {string} words @returns {Promise<{id: string, name: string}[]>} */
  async #find(words) {
    const { runs = "", find = "" } = must("#overlays").dataset;
    const answer = await fetch(words ? `${find}?q=${encodeURIComponent(words)}` : `${runs}?limit=${LISTED}&archived=false`, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!answer?.ok || answer.redirected) return [];
    const body = await answer.json();
    if (!words) return body.items;
    return /** @type {Api.SearchResult[]} */ (body.found).filter(({ kind }) => kind === "run").map(({ name, url }) => ({ id: url.replace(/\/$/, "").split("/").pop() ?? "", name }));
  }
}
