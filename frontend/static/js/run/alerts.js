/** The alerts of a run above its charts: fetched every few seconds while it is active, and once more after its end. */

import { count, make } from "../lib/format.js";

const EVERY_MS = 5000;
const OPEN_SHOWN = 6;
const LIMIT = 100;

/**
 * @typedef {Api.AlertAnswer} Alert
 */

/**
 * @typedef {Api.AlertsOfRunAnswer} Answer the open ones first; of many, not all are in it
 */

/**
 * @param {HTMLElement} root its data-url lists the run's alerts
 * @param {() => boolean} hasEnded
 * @param {(alerts: Alert[]) => void} onChange
 */
export function watchAlerts(root, hasEnded, onChange) {
  let shownText = "";
  let isLast = false;
  const look = async () => {
    const isEnd = hasEnded();
    if (isLast || document.hidden) return;
    try {
      const response = await fetch(`${root.dataset.url}?limit=${LIMIT}`, { headers: { Accept: "application/json" } });
      if (!response.ok) return;
      const text = await response.text();
      /** @type {Answer} */
      const answer = JSON.parse(text);
      isLast = isEnd && !answer.num_open;
      if (text === shownText) return;
      shownText = text;
      show(root, answer);
      onChange(answer.items);
    } catch {
      // The page itself shows that the connection is lost; the next round tries again.
    }
  };
  look();
  setInterval(look, EVERY_MS);
  document.addEventListener("visibilitychange", look);
}

/**
 * @param {HTMLElement} root
 * @param {Answer} answer
 */
function show(root, { items: alerts, count: total, num_open: numOpen }) {
  const open = alerts.filter((alert) => alert.is_open);
  const closed = alerts.filter((alert) => !alert.is_open);
  const wasOpen = root.querySelector("details")?.open ?? false;
  /** One box for each kind, the first one on top: often it is the cause of the others. @type {Map<string, Alert[]>} */
  const kinds = new Map();
  for (const alert of [...open].reverse()) kinds.set(alert.title, [...(kinds.get(alert.title) ?? []), alert]);
  /** @type {HTMLElement[]} */
  const boxes = [...kinds.values()].map(openAlerts);
  const unseen = numOpen - open.length;
  if (unseen > 0) boxes.push(make("p", "small", `and ${count(unseen)} more open alerts, see the Events tab`));
  if (total > numOpen) boxes.push(earlier(closed, total - numOpen, wasOpen));
  root.replaceChildren(...boxes);
}

/** @param {Alert[]} alerts of one kind */
function openAlerts(alerts) {
  const { title, chart, advice, fix_url: fixUrl } = alerts[0];
  const box = make("div", "alert alert-warning");
  const head = make("p");
  head.append(make("strong", "", title), " ");
  if (chart && document.getElementById(`chart-${chart}`)) {
    const link = document.createElement("a");
    link.href = `#chart-${chart}`;
    link.textContent = "Chart";
    link.setAttribute("aria-label", `Chart of: ${title}`);
    head.append(link);
  }
  const list = make("ul");
  for (const alert of alerts.slice(0, OPEN_SHOWN)) list.append(make("li", "", `Since step ${count(alert.raised_step)}: ${alert.text}`));
  if (alerts.length > OPEN_SHOWN) list.append(make("li", "", `and ${count(alerts.length - OPEN_SHOWN)} more, see the Events tab`));
  const todo = make("p", "", advice);
  if (fixUrl) {
    const fix = document.createElement("a");
    fix.href = fixUrl;
    fix.textContent = "Clone with fix";
    todo.append(" ", fix);
  }
  box.append(head, list, todo);
  return box;
}

/**
 * @param {Alert[]} closed the closed alerts in the answer
 * @param {number} total number of closed alerts
 * @param {boolean} isOpen
 */
function earlier(closed, total, isOpen) {
  const details = document.createElement("details");
  details.open = isOpen;
  const list = make("ul");
  for (const alert of closed) {
    const pair = alert.source ? `${alert.agent} ← ${alert.source}` : alert.agent;
    list.append(make("li", "small", `${alert.title}, ${pair}: steps ${count(alert.raised_step)} to ${count(alert.cleared_step)} (${alert.cleared_reason})`));
  }
  if (total > closed.length) list.append(make("li", "small", `and ${count(total - closed.length)} more, see the Events tab`));
  details.append(make("summary", "small", `${count(total)} earlier ${total === 1 ? "alert" : "alerts"}`), list);
  return details;
}
