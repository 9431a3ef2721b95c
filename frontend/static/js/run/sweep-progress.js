/** The page of a sweep: its progress, and its results as runs complete. sweep.js signals each change. */

import { count, duration, must } from "../lib/format.js";

/**
 * @typedef {Api.SweepProgress} Progress
 */

/** Least time between two fetches of the numbers above the matrix. */
const PAUSE_MS = 2000;
const url = must("#sweep").dataset.progress ?? "";
let isWaiting = false;

/**
 * @param {string} name
 * @param {string} text
 */
function show(name, text) {
  must(`[data-sweep="${name}"]`).textContent = text;
}

async function ask() {
  isWaiting = false;
  try {
    const answer = await fetch(url);
    if (answer.ok) showProgress(await answer.json());
  } catch {
    // Without a connection the page header shows it; the next change tries again.
  }
}

/** @param {Progress} progress */
function showProgress(progress) {
  const bar = must("#sweep-steps");
  if (bar instanceof HTMLProgressElement) {
    bar.max = Math.max(1, progress.total_steps);
    bar.value = progress.steps;
  }
  show("runs", count(progress.runs));
  show("steps", count(progress.steps));
  show("total_steps", count(progress.total_steps));
  show("eta", duration(progress.eta_s || null));
  must("div:has(> dd[data-sweep=eta])").hidden = progress.is_finished;
  for (const place of document.querySelectorAll("[data-count]")) {
    if (!(place instanceof HTMLElement)) continue;
    const number = progress.counts[place.dataset.count ?? ""] ?? 0;
    place.hidden = number === 0;
    must("dd", place).textContent = count(number);
  }
}

document.body.addEventListener("run-changed", (event) => {
  // htmx fetches the results again on this event.
  if (event instanceof CustomEvent && event.detail) document.body.dispatchEvent(new Event("results"));
  if (isWaiting) return;
  isWaiting = true;
  setTimeout(() => void ask(), PAUSE_MS);
});

// The trials of a search came anew: there may be runs that this page does not follow.
document.body.addEventListener("htmx:afterSettle", () => void ask());
