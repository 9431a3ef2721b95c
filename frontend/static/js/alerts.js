/** The alerts of a run above its charts: asked for every few seconds while it goes on, and once more after its end. */

import { count, make } from "./format.js";

const EVERY_MS = 5000;
const OPEN_SHOWN = 6;

/**
 * @typedef {{id: number, title: string, text: string, advice: string, agent: string, source: string, chart: string | null,
 *   is_open: boolean, raised_step: number, cleared_step: number | null, cleared_reason: string}} Alert
 */

/**
 * @param {HTMLElement} root whose data-url lists the run's alerts, newest first
 * @param {() => boolean} hasEnded
 * @param {(alerts: Alert[]) => void} onChange
 */
export function watchAlerts(root, hasEnded, onChange) {
  let seen = "";
  let isLast = false;
  const look = async () => {
    const isEnd = hasEnded();
    if (isLast || document.hidden) return;
    try {
      const answer = await fetch(root.dataset.url ?? "", { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      const text = await answer.text();
      /** @type {Alert[]} */
      const alerts = JSON.parse(text).alerts;
      isLast = isEnd && !alerts.some((alert) => alert.is_open);
      if (text === seen) return;
      seen = text;
      show(root, alerts);
      onChange(alerts);
    } catch {
      // The page says itself that its link is lost; the next look tries again.
    }
  };
  look();
  setInterval(look, EVERY_MS);
  document.addEventListener("visibilitychange", look);
}

/**
 * @param {HTMLElement} root
 * @param {Alert[]} alerts
 */
function show(root, alerts) {
  const open = alerts.filter((alert) => alert.is_open);
  const closed = alerts.filter((alert) => !alert.is_open);
  const wasOpen = root.querySelector("details")?.open ?? false;
  /** @type {HTMLElement[]} */
  const boxes = open.slice(0, OPEN_SHOWN).map(openAlert);
  if (open.length > OPEN_SHOWN) boxes.push(make("p", "quiet small", `and ${count(open.length - OPEN_SHOWN)} more, see the Events tab`));
  if (closed.length) boxes.push(earlier(closed, wasOpen));
  root.replaceChildren(...boxes);
}

/** @param {Alert} alert */
function openAlert(alert) {
  const box = make("div", "alert alert-warning");
  const line = make("p");
  line.append(make("strong", "", alert.title), ` since step ${count(alert.raised_step)}. ${alert.text} `);
  if (alert.chart && document.getElementById(`chart-${alert.chart}`)) {
    const link = document.createElement("a");
    link.href = `#chart-${alert.chart}`;
    link.textContent = "Chart";
    line.append(link);
  }
  box.append(line, make("p", "", alert.advice));
  return box;
}

/**
 * @param {Alert[]} closed
 * @param {boolean} isOpen
 */
function earlier(closed, isOpen) {
  const details = document.createElement("details");
  details.open = isOpen;
  const list = make("ul");
  for (const alert of closed) {
    const pair = alert.source ? `${alert.agent} ← ${alert.source}` : alert.agent;
    list.append(make("li", "small", `${alert.title}, ${pair}: steps ${count(alert.raised_step)} to ${count(alert.cleared_step)} (${alert.cleared_reason})`));
  }
  details.append(make("summary", "small", `${count(closed.length)} earlier ${closed.length === 1 ? "alert" : "alerts"}`), list);
  return details;
}
