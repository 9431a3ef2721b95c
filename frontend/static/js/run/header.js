/** The header that all tabs of a run share: state, progress and buttons, kept up to date by the run's socket. */

import { count, duration, must, showState } from "../lib/format.js";

export const TERMINAL = new Set(["completed", "failed", "stopped"]);
const header = must(".run-header");
const bar = header.querySelector("progress");

/**
 * @param {string} name
 * @param {string} text
 */
export function show(name, text) {
  for (const element of document.querySelectorAll(`[data-show="${name}"]`)) {
    if (element.textContent !== text) element.textContent = text;
  }
}

/** @param {number | null} step of a new checkpoint */
export function showCheckpoint(step) {
  show("checkpoint", `step ${count(step)}`);
  header.dataset.checkpoint = String(step);
}

/** Shows that the step number fell, from a resume until the run has reached its former step again. @param {number} before @param {number} step @param {number} attempt */
function showResumed(before, step, attempt) {
  const notice = must("#resumed");
  const until = Math.max(Number(notice.dataset.until), before);
  if (step < before) {
    notice.dataset.until = String(until);
    notice.textContent = `Attempt ${attempt} continues from the last checkpoint and repeats the steps up to ${count(until)}.`;
  }
  notice.hidden = !notice.textContent || step >= until;
}

/** @param {any} progress of a run frame: the last progress event */
export function showProgress(progress) {
  if (!progress || progress.step === undefined) return;
  if (bar) {
    bar.max = Math.max(1, progress.total_steps);
    bar.value = progress.step;
  }
  show("step", count(progress.step));
  show("total", count(progress.total_steps));
  document.title = document.title.replace(/^\d+\/\d+ · /, `${progress.step}/${progress.total_steps} · `);
  show("eta", duration(progress.eta_s || null));
  show("elapsed", duration(progress.elapsed_s));
  show("rollouts", count(progress.rollouts_generated));
  show("tokens", count(progress.tokens_generated));
}

/** @param {import("../lib/socket.js").RunFrame} frame */
export function showRun(frame) {
  if (frame.state !== header.dataset.state) {
    header.dataset.state = frame.state;
    document.querySelector("[data-banner]")?.remove(); // it is about the state before
    showState(header.querySelector(".state"), frame.state);
  }
  if (bar) showResumed(bar.value, frame.step, frame.attempt);
  // Until a resumed attempt has completed a step, the latest progress is that of the attempt before.
  if (frame.progress?.step !== undefined) showProgress({ ...frame.progress, step: frame.step });
  show("attempt", String(frame.attempt));
  const ended = TERMINAL.has(frame.state);
  const stopping = frame.desired_state === "stop" && !ended;
  must("#stopping").hidden = !stopping;
  must("#stop").hidden = stopping || ended || frame.state === "draft"; // a draft is deleted
  for (const button of header.querySelectorAll("[data-draft]")) /** @type {HTMLElement} */ (button).hidden = frame.state !== "draft";
  for (const part of header.querySelectorAll("[data-started]")) /** @type {HTMLElement} */ (part).hidden = (part.getAttribute("data-started") === "yes") !== frame.attempt > 0;
  must("#pausing").hidden = frame.desired_state !== "pause" || ended || frame.state === "paused";
  must("#pause").hidden = frame.desired_state !== "run" || ended || frame.state === "paused" || frame.state === "draft";
  must("#resume").hidden = frame.desired_state !== "pause" || ended;
  must("#retry").hidden = !ended;
  must(".run-eta").hidden = ended;
  const { checkpoint = "" } = header.dataset;
  must("#continue").hidden = !ended || !checkpoint;
  must("#retry-now").hidden = !ended || frame.state === "completed" || Boolean(checkpoint);
  if (frame.state !== "queued") document.querySelector("#place")?.remove(); // its place in the queue when the page was drawn
  const reason = must("#reason");
  reason.textContent = frame.reason;
  reason.hidden = !frame.reason || frame.state === "running"; // the state's word says that already
  reason.classList.toggle("alert-error", frame.state === "failed");
  reason.classList.toggle("alert-warning", frame.state === "paused");
}

/** The page is a replay: the steps that were done at its place, and no connection. */
export function showReplay() {
  const link = must("[data-link]", header);
  link.dataset.link = "replay";
  link.textContent = "replay";
  showProgress({ step: 0, total_steps: bar?.max ?? 1 });
}
