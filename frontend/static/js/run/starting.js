/** The phases of a run until its first step, in the place of the large chart: queued, downloading, loading, first evaluation, step 1. */

import { must } from "../lib/format.js";

/** @typedef {import("../lib/socket.js").RunEvent} RunEvent */

const PHASES = ["queue", "download", "load", "evaluate", "step"];
const TEXTS = {
  queue: "Waits for a worker.",
  download: "The models are downloaded from the hub, once for this machine.",
  load: "The trainer starts and loads the agents.",
  evaluate: "Each agent answers the held-out questions: where the curves begin.",
  step: "The agents sample, are verified, and learn for the first time.",
};

export class Starting {
  /** @param {HTMLElement} root its data-agents is their number */
  constructor(root) {
    this.root = root;
    this.numAgents = Number(root.dataset.agents);
    this.phase = "queue";
    /** @type {Set<string>} */
    this.evaluated = new Set();
  }

  /** @param {string} state of the run */
  follow(state) {
    if (["completed", "failed", "stopped", "draft", "paused"].includes(state)) this.end();
    else if (state === "starting" || state === "running") this.#reach("load");
  }

  /** @param {RunEvent[]} events */
  note(events) {
    if (this.root.hidden) return;
    for (const event of events) {
      if (event.step) return this.end();
      if (event.type === "log" && event.payload.message?.startsWith("downloading ")) this.#show("download", event.payload.message.replace("downloading ", ""));
      if (event.type === "started") this.#reach("evaluate");
      if (event.type === "evaluation") this.evaluated.add(event.agent);
    }
    if (this.evaluated.size >= this.numAgents) this.#reach("step");
  }

  end() {
    this.root.hidden = true;
  }

  /** A phase is not left for an earlier one. @param {keyof typeof TEXTS} phase */
  #reach(phase) {
    if (PHASES.indexOf(phase) > PHASES.indexOf(this.phase) || phase === this.phase) this.#show(phase, TEXTS[phase]);
  }

  /** @param {string} phase @param {string} text */
  #show(phase, text) {
    this.phase = phase;
    const place = PHASES.indexOf(phase);
    for (const item of this.root.querySelectorAll("[data-phase]")) {
      const own = PHASES.indexOf(/** @type {HTMLElement} */ (item).dataset.phase ?? "");
      item.setAttribute("data-phase-state", own < place ? "done" : own === place ? "now" : "next");
      item.toggleAttribute("aria-current", own === place);
      if (own === place) item.setAttribute("aria-current", "step");
    }
    const line = must("#starting-text", this.root);
    if (line.textContent !== text) line.textContent = text;
  }
}
