/**
 * Plays the recorded events of a finished run back to its page, as the socket brings those of a live one.
 *
 * The address holds the speed (`replay`, as a multiple of the run's own) and the step that it begins at (`at`). Pauses
 * of the run that would be longer than LONGEST_WAIT_MS are cut to that. Where the reader wants less motion it begins paused.
 */

import { count, must } from "../lib/format.js";

/** @typedef {import("../lib/socket.js").RunEvent} RunEvent */

const TICK_MS = 100;
/** A page in the background gets few ticks: the replay then waits for the reader. */
const LONGEST_TICK_MS = 500;
const LONGEST_WAIT_MS = 2000;
const AHEAD = 300;
const RETRY_MS = 2000;
/** What the run page draws; rollouts are read by the step. */
const TYPES = ["started", "progress", "metrics", "evaluation", "checkpoint", "log", "left_out", "finished"];

export class Replay {
  /**
   * @param {HTMLElement} bar its data-url lists the run's events
   * @param {{events: (events: RunEvent[]) => void, step: (step: number) => void, ended: () => void}} on
   *   step: after each event of a later step
   */
  constructor(bar, on) {
    this.bar = bar;
    this.on = on;
    const query = new URLSearchParams(location.search);
    this.speed = Number(query.get("replay")) || 1;
    /** Events up to this step come at once. */
    this.startStep = Number(query.get("at")) || 0;
    this.step = 0;
    /** @type {RunEvent[]} read and not yet played */
    this.queue = [];
    this.cursor = 0;
    this.isRead = false;
    this.isReading = false;
    /** The time of the run that has been reached, in its own seconds; null before the first event. @type {number | null} */
    this.clock = null;
    this.isPlaying = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.range = /** @type {HTMLInputElement} */ (must("#replay-step", bar));
    this.#listen();
    this.#show();
    this.ticked = Date.now();
    setInterval(() => this.#tick(), TICK_MS);
    this.#read();
  }

  #listen() {
    const speeds = /** @type {HTMLSelectElement} */ (must("#replay-speed", this.bar));
    speeds.addEventListener("change", () => {
      this.speed = Number(speeds.value);
      this.#remember({ replay: speeds.value });
    });
    must("#replay-play", this.bar).addEventListener("click", () => {
      if (this.isOver) return location.assign(this.#address({ at: "" }));
      this.isPlaying = !this.isPlaying;
      this.#remember({ at: this.isPlaying ? "" : String(this.step) });
      return this.#show();
    });
    must("#replay-next", this.bar).addEventListener("click", () => {
      this.isPlaying = false;
      this.#skipTo(this.step + 1);
    });
    this.range.addEventListener("change", () => {
      const step = Number(this.range.value);
      if (step < this.step) location.assign(this.#address({ at: String(step) }));
      else this.#skipTo(step);
    });
  }

  get isOver() {
    return this.isRead && !this.queue.length;
  }

  /** @param {Record<string, string>} changes of the address; an empty value removes a parameter */
  #address(changes) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    return `${location.pathname}?${query}${location.hash}`;
  }

  /** @param {Record<string, string>} changes */
  #remember(changes) {
    history.replaceState(history.state, "", this.#address(changes));
  }

  /** @param {number} step what came up to its end is played at once */
  #skipTo(step) {
    this.startStep = Math.max(this.startStep, step);
    this.#remember({ at: String(this.startStep) });
    this.#play(0);
    this.#show();
  }

  #tick() {
    const now = Date.now();
    const passed = Math.min(now - this.ticked, LONGEST_TICK_MS);
    this.ticked = now;
    if (document.hidden) return;
    this.#play(this.isPlaying ? (passed / 1000) * this.speed : 0);
  }

  /** @param {number} seconds of the run */
  #play(seconds) {
    if (!this.queue.length) return;
    this.clock = Math.max((this.clock ?? this.queue[0].time) + seconds, seconds && this.queue[0].time - (LONGEST_WAIT_MS / 1000) * this.speed);
    const { clock } = this;
    let due = this.queue.findIndex((event) => event.time > clock && !this.#isSkipped(event));
    if (!seconds) due = this.queue.findIndex((event) => !this.#isSkipped(event));
    const events = this.queue.splice(0, due < 0 ? this.queue.length : due);
    if (events.length) this.#deliver(events);
    if (this.queue.length < AHEAD) this.#read();
    if (this.isOver) {
      this.on.ended();
      this.#show();
    }
  }

  /** @param {RunEvent} event */
  #isSkipped(event) {
    return (event.step ?? this.step) <= this.startStep && this.startStep > 0;
  }

  /** @param {RunEvent[]} events */
  #deliver(events) {
    this.clock = Math.max(this.clock ?? 0, events[events.length - 1].time);
    const step = Math.max(this.step, ...events.map((event) => event.step ?? 0));
    this.on.events(events);
    if (step > this.step) this.on.step(step);
    this.step = step;
    this.#show();
  }

  async #read() {
    if (this.isRead || this.isReading) return;
    this.isReading = true;
    const answer = await fetch(`${this.bar.dataset.url}?types=${TYPES.join(",")}&after=${this.cursor}`).catch(() => null);
    if (answer?.ok) {
      /** @type {{seq: number, events: RunEvent[], last_seq: number}} */
      const { seq, events, last_seq: last } = await answer.json();
      this.queue.push(...events);
      this.cursor = seq;
      this.isRead = seq >= last;
      this.isReading = false;
      if (!this.isRead && this.queue.length < AHEAD) this.#read();
    } else {
      must("#replay-state", this.bar).textContent = "the server does not answer; retrying";
      setTimeout(() => ((this.isReading = false), this.#read()), RETRY_MS);
    }
  }

  #show() {
    const button = must("#replay-play", this.bar);
    button.textContent = this.isOver ? "Play again" : this.isPlaying ? "Pause" : "Play";
    this.range.value = String(this.step);
    must("#replay-state", this.bar).textContent = this.isOver ? "the end of the run" : `step ${count(this.step)} of ${count(Number(this.range.max))}`;
    this.bar.dataset.step = String(this.step);
    this.bar.dataset.over = String(this.isOver);
  }
}

/** The results as they were at the last of these events. @param {RunEvent[]} events */
export async function showResults(events) {
  const step = Math.max(...events.map((event) => event.step ?? 0));
  const query = new URLSearchParams(location.search);
  query.set("at", String(step));
  const answer = await fetch(`${location.pathname}?${query}`).catch(() => null);
  const fresh = answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#results") : null;
  if (fresh) must("#results").replaceChildren(...fresh.children);
}
