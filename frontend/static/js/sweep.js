/** Pages that list runs (sweep, runs, home): each row with `data-run` follows its run's state and progress. */

import { count, duration, showState } from "./format.js";
import { pageSocket } from "./socket.js";

const TERMINAL = new Set(["completed", "failed", "stopped"]);
const rows = [...document.querySelectorAll("[data-run]")].filter((row) => row instanceof HTMLElement);
/** The server refuses more subscriptions than this on one socket. */
const MOST_FOLLOWED = 60;
const open = rows.filter((row) => !TERMINAL.has(row.dataset.state ?? "")).slice(0, MOST_FOLLOWED);

/**
 * @param {HTMLElement} row
 * @param {string} name
 * @param {string} text
 */
function show(row, name, text) {
  const element = row.querySelector(`[data-show="${name}"]`);
  if (element && element.textContent !== text) element.textContent = text;
}

/**
 * @param {HTMLElement} row
 * @param {any} progress
 */
function showProgress(row, progress) {
  if (!progress || progress.step === undefined) return;
  const bar = row.querySelector("progress");
  if (bar) {
    bar.max = Math.max(1, progress.total_steps);
    bar.value = progress.step;
  }
  show(row, "step", count(progress.step));
  show(row, "total", count(progress.total_steps));
  show(row, "eta", TERMINAL.has(row.dataset.state ?? "") ? "–" : duration(progress.eta_s));
  show(row, "rollouts", count(progress.rollouts_generated));
}

/**
 * @param {HTMLElement} row
 * @param {import("./socket.js").RunFrame} frame
 */
function showRun(row, frame) {
  row.dataset.state = frame.state;
  showState(row.querySelector(".state"), frame.state);
  showProgress(row, frame.progress);
  if (!TERMINAL.has(frame.state)) return;
  show(row, "eta", "–");
  // The finished page has more on it (the leaderboard of a sweep): fetch it once all its runs are done.
  const reload = document.querySelector("[data-reload-when-done]");
  if (reload && rows.every((one) => TERMINAL.has(one.dataset.state ?? ""))) location.reload();
}

if (open.length) {
  const socket = pageSocket();
  for (const row of open) {
    // The events themselves are on the run's own page: start at the end of what the row already shows.
    socket.subscribe(row.dataset.run ?? "", Number(row.dataset.lastSeq ?? 0), {
      run: (frame) => showRun(row, frame),
    });
  }
} else {
  document.querySelector("[data-link]")?.remove();
}
