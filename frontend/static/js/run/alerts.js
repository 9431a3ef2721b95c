/** The alerts of a run, as one line above its charts: fetched every few seconds while it is active, and once more after its end. */

import { count, make } from "../lib/format.js";

const EVERY_MS = 5000;
const OPEN_SHOWN = 6;
const LIMIT = 100;
/** How the reason begins for which the end of a run closes its alerts: alerts/models.py. */
const ENDED = "the run ended";

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
 * One line, whose height is reserved: the first kind of alert, because often it causes the others, and a button for the rest.
 * @param {HTMLElement} root
 * @param {Answer} answer
 */
function show(root, { items: alerts, count: total, num_open: numOpen }) {
  /** Also those that only the end of the run has closed. */
  const open = alerts.filter((alert) => alert.is_open || alert.cleared_reason.startsWith(ENDED));
  const closed = alerts.filter((alert) => !open.includes(alert));
  const numClosed = total - numOpen - open.filter((alert) => !alert.is_open).length;
  const wasOpen = root.querySelector("[aria-expanded]")?.getAttribute("aria-expanded") === "true";
  /** @type {Map<string, Alert[]>} */
  const kinds = new Map();
  for (const alert of [...open].reverse()) kinds.set(alert.title, [...(kinds.get(alert.title) ?? []), alert]);
  const body = make("div", "alert-body stack-tight");
  body.hidden = true;
  body.append(...[...kinds.values()].map(openAlerts));
  const unseen = numOpen - open.filter((alert) => alert.is_open).length;
  if (unseen > 0) body.append(make("p", "small", `and ${count(unseen)} more open alerts, see the Events tab`));
  if (numClosed > 0) body.append(earlier(closed, numClosed));
  root.classList.toggle("is-open", open.length > 0);
  root.replaceChildren(summary(kinds.values().next().value ?? [], kinds.size, numClosed, body, wasOpen), body);
}

/**
 * @param {Alert[]} first the open alerts of the first kind
 * @param {number} numKinds
 * @param {number} numClosed
 * @param {HTMLElement} body what the button shows
 * @param {boolean} isShown
 */
function summary(first, numKinds, numClosed, body, isShown) {
  const line = make("div", "alert-line");
  if (first.length) {
    const newest = first[0];
    const text = make("span", "cut");
    text.append(make("strong", "", newest.title), ` since step ${count(newest.raised_step)}: ${newest.text}`);
    text.title = newest.text;
    line.append(text);
    if (newest.fix_url && canClone()) line.append(fixLink(newest));
  } else line.append(make("span", "quiet", numClosed ? "No open alerts." : "No alerts."));
  if (!numKinds && !numClosed) return line;
  const more = make("button", "chart-button", numKinds > 1 ? `What to do, and ${count(numKinds - 1)} more` : numKinds ? "What to do" : `${count(numClosed)} earlier ${numClosed === 1 ? "alert" : "alerts"}`);
  more.type = "button";
  const toggle = (/** @type {boolean} */ isOpen) => {
    more.setAttribute("aria-expanded", String(isOpen));
    body.hidden = !isOpen;
  };
  toggle(isShown);
  more.addEventListener("click", () => toggle(Boolean(body.hidden)));
  line.append(more);
  return line;
}

/** Whether the reader may create runs: viewers may not. */
const canClone = () => document.querySelector("[data-can-clone]") !== null;

/** @param {Alert} alert with a remedy */
function fixLink({ fix_url: url, fix: change }) {
  const fix = make("a", "", "Clone with fix");
  fix.href = url;
  fix.title = change;
  return fix;
}

/** @param {Alert[]} alerts of one kind */
function openAlerts(alerts) {
  const { title, chart, advice } = alerts[0];
  const box = make("div");
  const head = make("p");
  head.append(make("strong", "", title), " ");
  if (chart && document.getElementById(`chart-${chart}`)) {
    const link = make("a", "", "Chart");
    link.href = `#chart-${chart}`;
    link.setAttribute("aria-label", `Chart of: ${title}`);
    head.append(link);
  }
  const list = make("ul");
  for (const alert of alerts.slice(0, OPEN_SHOWN)) list.append(make("li", "", `Since step ${count(alert.raised_step)}: ${alert.text}`));
  if (alerts.length > OPEN_SHOWN) list.append(make("li", "", `and ${count(alerts.length - OPEN_SHOWN)} more, see the Events tab`));
  const todo = make("p", "", advice);
  if (alerts[0].fix_url) todo.append(" ", ...(canClone() ? [fixLink(alerts[0])] : []), make("span", "quiet", ` ${alerts[0].fix}`));
  box.append(head, list, todo);
  return box;
}

/**
 * @param {Alert[]} closed the closed alerts in the answer
 * @param {number} total number of closed alerts
 */
function earlier(closed, total) {
  const list = make("ul");
  for (const alert of closed) {
    const pair = alert.source ? `${alert.agent} ← ${alert.source}` : alert.agent;
    list.append(make("li", "small", `${alert.title}, ${pair}: steps ${count(alert.raised_step)} to ${count(alert.cleared_step)} (${alert.cleared_reason})`));
  }
  if (total > closed.length) list.append(make("li", "small", `and ${count(total - closed.length)} more, see the Events tab`));
  const section = make("div");
  section.append(make("p", "small quiet", "Earlier alerts"), list);
  return section;
}
