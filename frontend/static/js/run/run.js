/** The run page: charts from the server's buckets, logs and events from its history, kept live by the socket. */

import { watchAlerts } from "./alerts.js";
import { RunCharts } from "../charts/charts.js";
import { Influential } from "../collaboration/influential.js";
import { clock, count, make, must, readJson } from "../lib/format.js";
import { TERMINAL, showCheckpoint, showProgress, showReplay, showRun } from "./header.js";
import { pageSocket } from "../lib/socket.js";
import { Teaching } from "./teaching.js";

const LOG_LINES = 2000;
const RETRY_MS = 2000;

const page = must("#run");
const run = page.dataset.run ?? "";
const settings = readJson("run-data");
const container = must("#charts");
/** For browser tests: what is drawn. */
export const charts = new RunCharts(container, { ...settings, panels: readJson("panels-data"), run, url: container.dataset.url ?? "" });
const teaching = new Teaching(must("#hero"), charts, new Influential(must("#influential"), settings.agents, settings.shares));
/** The phases of a run without a step; null once it has one. @type {import("./starting.js").Starting | null} */
let starting = null;
const startingPlace = document.querySelector("#starting");
if (startingPlace instanceof HTMLElement) {
  const { Starting } = await import("./starting.js");
  starting = new Starting(startingPlace);
  starting.follow(page.dataset.state ?? "");
}
let updates = 0;
/** Of the log lines so far; and the number of ended attempts among them. */
let lastAttempt = 0;
let numEnds = 0;
let synced = false;

/** @param {import("../lib/socket.js").RunFrame} frame */
function showStatus(frame) {
  showRun(frame);
  starting?.follow(frame.state);
  if (frame.state !== page.dataset.state) {
    page.dataset.state = frame.state;
    must("#ending").dispatchEvent(new Event("changed"));
    loadHistory(0);
  }
  if (TERMINAL.has(frame.state)) charts.end();
}

/** A line between the attempts of a run. @param {number} attempt */
function divide(attempt) {
  if (attempt <= lastAttempt) return;
  lastAttempt = attempt;
  must("#log-lines").append(make("h3", "log-attempt", `Attempt ${count(attempt)}`));
}

/** How attempts ended, after their lines; each is added once. @param {Api.AttemptEndAnswer[]} ends @param {number} before an attempt */
function addEnds(ends, before) {
  for (const end of ends.slice(numEnds)) {
    if (end.attempt >= before) return;
    numEnds += 1;
    divide(end.attempt);
    addLine(Date.parse(end.at) / 1000, end.level, end.text);
  }
}

/** @param {import("../lib/socket.js").RunEvent} event */
function addLog(event) {
  const level = event.payload.level ?? "info";
  addLine(event.time, level, event.payload.message ?? "");
}

/**
 * @param {number} time
 * @param {string} level
 * @param {string} message
 */
function addLine(time, level, message) {
  const lines = must("#log-lines");
  const line = make("div", `log-line log-${level === "error" || level === "warning" ? level : "info"}`);
  line.append(make("span", "log-time", clock(time)), make("span", "log-level", level), make("span", "log-text", message));
  const follows = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
  lines.append(line);
  while (lines.childElementCount > LOG_LINES) lines.firstElementChild?.remove();
  must("#log-empty").hidden = true;
  // A reader who has scrolled up stays there.
  if (follows) lines.scrollTop = lines.scrollHeight;
}

/** @param {import("../lib/socket.js").RunEvent} event */
function describe(event) {
  const body = event.payload;
  if (event.type === "checkpoint") showCheckpoint(event.step);
  if (event.type !== "left_out") return;
  const kinds = Object.entries(body.counts).map(([kind, number]) => `${count(Number(number))} of type ${kind}`);
  addLine(event.time, "warning", `left out: ${kinds.join(", ")} (${body.reason})`);
}

/** @param {import("../lib/socket.js").RunEvent[]} events @param {Api.AttemptEndAnswer[]} [ends] */
function addToLog(events, ends = []) {
  starting?.note(events);
  for (const event of events) {
    addEnds(ends, event.attempt);
    if (event.type === "log" || event.type === "left_out") divide(event.attempt);
    if (event.type === "log") addLog(event);
    else describe(event);
  }
  addEnds(ends, Infinity);
  charts.note(events);
}

/** @param {import("../lib/socket.js").RunEvent} event @returns {boolean} false for an evaluation that no chart shows */
function isCharted(event) {
  return event.type !== "evaluation" || !settings.further.includes(event.payload.benchmark);
}

/** @param {import("../lib/socket.js").RunEvent[]} events */
function addEvents(events) {
  addToLog(events);
  charts.add(events.filter(isCharted));
  if (events.some((event) => event.type === "evaluation")) must("#results").dispatchEvent(new Event("evaluated"));
  if (synced) updates += 1;
  mark(events[events.length - 1].seq);
}

/** @param {number} seq for browser tests: the newest event in the charts */
function mark(seq) {
  container.dataset.points = String(charts.store.points);
  container.dataset.lastSeq = String(seq);
  container.dataset.updates = String(updates);
}

/** Logs the events up to a seq, and how attempts ended; tries again without a connection and while the server is busy. @param {number} seq */
async function loadHistory(seq) {
  for (;;) {
    const answer = await fetch(`${page.dataset.history}?up_to=${seq}`).catch(() => null);
    if (answer?.ok) {
      const { events, ends } = /** @type {Api.HistoryAnswer} */ (await answer.json());
      return addToLog(/** @type {import("../lib/socket.js").RunEvent[]} */ (events), ends);
    }
    if (answer && answer.status < 500 && answer.status !== 429) return addLine(Date.now() / 1000, "error", `the history cannot be read: the server answered ${answer.status}`);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** @param {string} name of the tab to show */
function openTab(name) {
  for (const link of page.querySelectorAll(".tabs a[data-tab]")) {
    if (/** @type {HTMLElement} */ (link).dataset.tab === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const panel of page.querySelectorAll("[data-panel]")) {
    const element = /** @type {HTMLElement} */ (panel);
    element.hidden = element.dataset.panel !== name;
  }
  if (name === "logs") must("#log-lines").scrollTop = must("#log-lines").scrollHeight;
}

function currentTab() {
  return new URLSearchParams(location.search).get("tab") ?? "overview";
}

// Tabs are links, which work without this file; with it they switch without losing the charts.
page.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[data-tab]") : null;
  if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  openTab(link.dataset.tab ?? "overview");
});
addEventListener("popstate", () => openTab(currentTab()));

mark(0);

/** @returns {Promise<number>} the seq from which the socket continues */
async function start() {
  const seq = await charts.load();
  return seq ?? start(); // the reader has zoomed before the first answer came
}

/** Plays the recorded events back instead of following the run. @param {HTMLElement} bar */
async function replay(bar) {
  charts.begin();
  charts.restore();
  teaching.reached(-1);
  showReplay();
  const { Replay, showResults } = await import("./replay.js");
  return new Replay(bar, {
    events: (events) => {
      addEvents(events);
      const progress = events.findLast((event) => event.type === "progress");
      if (progress) showProgress({ ...progress.payload, step: progress.step });
      if (events.some((event) => event.type === "evaluation")) void showResults(events);
    },
    step: (step) => {
      charts.reached(step);
      teaching.reached(step);
    },
    ended: () => charts.end(),
  });
}

const bar = document.querySelector("#replay");
if (bar instanceof HTMLElement) void replay(bar);
else {
  const alerts = document.querySelector("#run-alerts"); // absent without the feature
  if (alerts instanceof HTMLElement) watchAlerts(alerts, () => TERMINAL.has(page.dataset.state ?? ""), (alerts) => charts.setMarks(alerts));
  follow();
}

function follow() {
  start().then(async (seq) => {
    mark(seq);
    charts.restore();
    if (charts.store.lastStep > 0) starting?.end();
    await loadHistory(seq);
    pageSocket().subscribe(run, seq, {
      events: addEvents,
      run: showStatus,
      synced: (to) => {
        synced = true;
        container.dataset.synced = String(to);
        mark(to);
      },
      error: (message) => addLine(Date.now() / 1000, "error", message),
    });
  });
}
