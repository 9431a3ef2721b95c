/**
 * Pages that list runs (sweep, runs, home): each element with `data-run` follows its run's state and progress. Each
 * change fires the event "run-changed" on the page; its detail is true when a run has ended.
 */

import { count, duration, showState } from "../lib/format.js";
import { reloadPage } from "../lib/reload.js";
import { pageSocket } from "../lib/socket.js";

const TERMINAL = new Set(["completed", "failed", "stopped"]);
const HELD = new Set(["starting", "running"]);
const rows = [...document.querySelectorAll("[data-run]")].filter((row) => row instanceof HTMLElement);
/** The server refuses more subscriptions than this on one socket. */
const MOST_FOLLOWED = 60;
/** @type {Map<string, HTMLElement[]>} a run may be on the page twice: in the matrix of its sweep and in the table */
const open = new Map();
for (const row of rows) {
  const run = row.dataset.run ?? "";
  if (TERMINAL.has(row.dataset.state ?? "") || (!open.has(run) && open.size >= MOST_FOLLOWED)) continue;
  open.set(run, [...(open.get(run) ?? []), row]);
}

/** @param {boolean} hasEnded */
function tell(hasEnded) {
  document.body.dispatchEvent(new CustomEvent("run-changed", { detail: hasEnded }));
}

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
  show(row, "eta", TERMINAL.has(row.dataset.state ?? "") ? "–" : duration(progress.eta_s || null));
  show(row, "rollouts", count(progress.rollouts_generated));
}

/**
 * @param {HTMLElement} row
 * @param {import("../lib/socket.js").RunFrame} frame
 */
function showRun(row, frame) {
  row.dataset.state = frame.state;
  showState(row.querySelector(".state"), frame.state);
  showProgress(row, frame.progress);
  if (TERMINAL.has(frame.state)) show(row, "eta", "–");
  if (!HELD.has(frame.state)) show(row, "device", "–"); // its device is free again
}

function reloadWhenDone() {
  // The page of a finished sweep has a leaderboard: fetch it once all runs have ended.
  const reload = document.querySelector("[data-reload-when-done]");
  if (reload && rows.every((one) => TERMINAL.has(one.dataset.state ?? ""))) reloadPage();
}

/** Buttons that act on ticked runs wait for a tick. */
const ticks = [...document.querySelectorAll("input[name='runs'][type='checkbox']")].filter((one) => one instanceof HTMLInputElement);
function allowActions() {
  const isTicked = ticks.some((one) => one.checked);
  for (const button of document.querySelectorAll("button[data-needs-ticks]")) {
    if (button instanceof HTMLButtonElement) button.disabled = !isTicked;
  }
}
for (const one of ticks) one.addEventListener("change", allowActions);
allowActions();
addEventListener("pageshow", allowActions); // back to a page whose ticks the browser has kept

if (open.size) {
  const socket = pageSocket();
  for (const [run, places] of open) {
    // Events are shown on the run's own page alone: start after what the row already shows.
    socket.subscribe(run, Number(places[0]?.dataset.lastSeq ?? 0), {
      run: (frame) => {
        for (const row of places) showRun(row, frame);
        tell(TERMINAL.has(frame.state));
        if (TERMINAL.has(frame.state)) reloadWhenDone();
      },
    });
  }
} else {
  document.querySelector("[data-link]")?.remove();
}
