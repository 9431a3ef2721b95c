/** Who teaches whom, beside the large chart of the Overview: the step under the cursor, of the scrubber, or the newest. */

import { drawPicture } from "../collaboration/picture.js";
import { count, make, must } from "../lib/format.js";

const POLL_MS = 5000;
const HOVER_MS = 80;
const KEPT = 200;

/** @typedef {import("../charts/charts.js").RunCharts} RunCharts */
/** @typedef {import("../collaboration/influential.js").Influential} Influential */

export class Teaching {
  /**
   * @param {HTMLElement} root its data-url is the collaboration API of the run
   * @param {RunCharts} charts whose cursor it shares
   * @param {Influential} influential shows the same step
   */
  constructor(root, charts, influential) {
    this.root = root;
    this.charts = charts;
    this.influential = influential;
    this.range = /** @type {HTMLInputElement} */ (must("#hero-range", root));
    this.picture = must("#hero-picture", root);
    /** @type {number[]} */
    this.steps = [];
    /** Of a replay: the newest step that it shows, and the answer that it takes steps from. */
    this.limit = Infinity;
    /** @type {Api.StepsAnswer | null} */
    this.answer = null;
    this.attempt = 0;
    this.ended = false;
    /** The scrubber's step; null at the end of the run, which a live run moves on. @type {number | null} */
    this.pinned = stepInAddress();
    /** @type {number | null} */
    this.hovered = null;
    /** @type {Map<number, Api.StepAnswer>} */
    this.answers = new Map();
    /** @type {Api.StepAnswer | null} */
    this.shown = null;
    this.timer = 0;
    this.range.addEventListener("input", () => this.#scrub());
    charts.onHover = (step) => this.#hover(step);
    new ResizeObserver(() => this.#paint()).observe(this.picture);
    this.#follow();
  }

  async #follow() {
    if (!document.hidden) {
      const answer = await fetch(`${this.root.dataset.url}/steps`, { headers: { Accept: "application/json" } }).catch(() => null);
      if (answer?.ok) this.#take(await answer.json());
    }
    if (!this.ended) setTimeout(() => this.#follow(), POLL_MS);
  }

  /** A replay has reached this step. @param {number} step */
  reached(step) {
    this.limit = step;
    if (this.answer) this.#take(this.answer);
  }

  /** @param {Api.StepsAnswer} answer */
  #take(answer) {
    this.answer = answer;
    const { attempt, ended } = answer;
    const steps = answer.steps.filter((step) => step <= this.limit);
    if (attempt !== this.attempt) this.answers.clear(); // a resumed run repeats steps
    this.attempt = attempt;
    this.ended = ended;
    this.steps = steps;
    this.range.disabled = !steps.length;
    this.range.max = String(Math.max(0, steps.length - 1));
    if (!steps.length) {
      this.picture.replaceChildren(make("p", "quiet", ended ? "No step with recorded rollouts." : "Appears with the first step of recorded rollouts."));
      return;
    }
    this.#show();
  }

  #scrub() {
    const place = Number(this.range.value);
    this.pinned = place === this.steps.length - 1 ? null : this.steps[place];
    this.charts.pointAt(this.steps[place]);
    const query = new URLSearchParams(location.search);
    if (this.pinned === null) query.delete("step");
    else query.set("step", String(this.pinned));
    history.replaceState(history.state, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
    this.#show();
  }

  /** @param {number | null} step */
  #hover(step) {
    if (step === this.hovered) return;
    this.hovered = step;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#show(), HOVER_MS);
  }

  /** The recorded step to be shown. */
  get step() {
    const wanted = this.hovered ?? this.pinned ?? Infinity;
    const last = this.steps[this.steps.length - 1];
    return wanted > last ? last : this.steps.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best), this.steps[0]);
  }

  async #show() {
    if (!this.steps.length) return;
    const { step } = this;
    this.range.value = String(this.steps.indexOf(step));
    this.range.setAttribute("aria-valuetext", `step ${step}`);
    for (const place of this.root.querySelectorAll("[data-hero-step]")) place.textContent = count(step);
    let view = this.answers.get(step);
    if (!view) {
      const answer = await fetch(`${this.root.dataset.url}/step?step=${step}`, { headers: { Accept: "application/json" } }).catch(() => null);
      if (!answer?.ok) return; // the next look tries again; the page says that the connection is lost
      view = /** @type {Api.StepAnswer} */ (await answer.json());
      this.answers.set(step, view);
      if (this.answers.size > KEPT) this.answers.delete(/** @type {number} */ (this.answers.keys().next().value));
    }
    if (step !== this.step) return; // the reader has moved on
    this.shown = view;
    this.#paint();
    this.influential.show(step, this.attempt);
    this.root.dataset.step = String(step);
  }

  #paint() {
    if (!this.shown || !this.picture.clientWidth) return;
    drawPicture(this.picture, this.shown, null, this.picture.clientHeight);
    const sentence = must("#hero-sentence", this.root);
    sentence.textContent = this.shown.sentences[0]?.text ?? "";
  }
}

/** The step that the address names; null without one. */
function stepInAddress() {
  const text = new URLSearchParams(location.search).get("step") ?? "";
  return /^\d{1,9}$/.test(text) ? Number(text) : null;
}
