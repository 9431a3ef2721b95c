/** Parts of every page: the live count of running runs, relative times, banners, scrolling tables, menus. */

import { count, duration } from "./format.js";
import { reloadPage } from "./reload.js";
import { keepRecent } from "./recent.js";

const POLL_MS = 10_000;
/** While the demo is being created, its page waits for it. */
const WAITING_MS = 2000;
const TICK_MS = 5000;

/** @param {number} seconds since a moment; negative before it */
function ago(seconds) {
  if (Math.abs(seconds) < 5) return "just now";
  return seconds > 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

/** The server's clock minus the browser's: an incorrect browser clock must not make a heartbeat look late. */
const skew = Date.parse(document.documentElement.dataset.now ?? "") - Date.now() || 0;

function tick() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const text = ago((Date.now() + skew - Date.parse(/** @type {HTMLTimeElement} */ (time).dateTime)) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
}

async function pollHeader() {
  const counter = document.querySelector("[data-pulse]");
  if (!(counter instanceof HTMLElement)) return;
  if (!document.hidden) {
    const answer = await fetch(counter.dataset.pulse ?? "").catch(() => null);
    if (answer?.redirected) return; // the login is over: the next page says so
    if (answer?.ok) showHeader(counter, await answer.json());
  }
  setTimeout(pollHeader, pause());
}

function pause() {
  return document.querySelector("[data-demo]:not([data-demo=''])") ? WAITING_MS : POLL_MS;
}

/**
 * @param {HTMLElement} counter
 * @param {{running: number, demo: string, percent: number | null, phase: number}} now
 */
function showHeader(counter, now) {
  counter.textContent = count(now.running);
  const banner = document.querySelector("[data-demo]");
  if (!(banner instanceof HTMLElement) || banner.dataset.demo === now.demo) return;
  const doing = banner.querySelector("[data-doing]");
  if (!doing || now.demo === "" || String(now.phase) !== banner.dataset.phase) reloadPage(); // it has begun, or its runs are there now
  else doing.textContent = banner.dataset.demo = now.demo;
  const bar = banner.querySelector("progress");
  if (bar && now.percent !== null) bar.value = now.percent;
}

/** A message about the last action is shown once. */
function dropBanners() {
  for (const banner of document.querySelectorAll("[data-banner]")) banner.remove();
}

/**
 * A table or text that is larger than its box can be scrolled by keyboard, and has a name.
 * @param {Element} scroller
 */
function nameScroller(scroller) {
  const isCut = scroller.scrollWidth > scroller.clientWidth + 1 || scroller.scrollHeight > scroller.clientHeight + 1;
  if (!isCut) {
    for (const attribute of ["tabindex", "role", "aria-label"]) scroller.removeAttribute(attribute);
    return;
  }
  const heading = scroller.querySelector("caption") ?? scroller.closest("section, article, .card")?.querySelector("h1, h2, h3");
  scroller.setAttribute("tabindex", "0");
  scroller.setAttribute("role", "group"); // no landmark: a page may have dozens
  scroller.setAttribute("aria-label", `${heading?.textContent?.trim() || "Part of the page"} (scrollable)`);
}

const SCROLLERS = ".table-scroll, pre";
const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const scroller = target.closest(SCROLLERS);
    if (scroller) nameScroller(scroller);
  }
});
function watchScrollers() {
  for (const scroller of document.querySelectorAll(SCROLLERS)) {
    widths.observe(scroller);
    if (scroller.firstElementChild) widths.observe(scroller.firstElementChild);
  }
}

watchScrollers();
document.body.addEventListener("htmx:afterSettle", watchScrollers); // also those that come later
document.body.addEventListener("parts-exchanged", watchScrollers);
document.querySelector(".tabs [aria-current='page']")?.scrollIntoView({ block: "nearest", inline: "center" });

document.addEventListener("click", (event) => {
  if (event.target instanceof Element && event.target.closest("a[data-tab]")) dropBanners();
});
/** @returns {NodeListOf<HTMLDetailsElement>} */
const openMenus = () => document.querySelectorAll("details.menu[open]");
// A click elsewhere closes a menu, else two menus would overlap; opening another by keyboard counts as a click.
document.addEventListener("click", (event) => {
  const opensDialog = event.target instanceof Element && event.target.closest("[data-open]");
  for (const menu of openMenus()) if (opensDialog || !event.composedPath().includes(menu)) menu.open = false;
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  for (const menu of openMenus()) {
    const hadFocus = menu.contains(document.activeElement);
    menu.open = false;
    if (hadFocus) menu.querySelector("summary")?.focus();
  }
});

/** The rail as icons alone; the server reads the cookie, so that no page moves while it loads. */
const fold = document.querySelector(".rail-fold");
const frame = document.querySelector(".frame");
if (fold instanceof HTMLButtonElement && frame instanceof HTMLElement) {
  const showFold = () => {
    const isFolded = frame.dataset.rail === "icons";
    fold.title = isFolded ? "Expand" : "";
    fold.setAttribute("aria-expanded", String(!isFolded));
    const text = fold.querySelector("span");
    if (text) text.textContent = isFolded ? "Expand" : "Collapse";
  };
  fold.hidden = false;
  fold.addEventListener("click", () => {
    frame.dataset.rail = frame.dataset.rail === "icons" ? "" : "icons";
    document.cookie = `rail=${frame.dataset.rail}; path=/; max-age=31536000; samesite=lax`;
    showFold();
  });
  showFold();
}

addEventListener("popstate", dropBanners);
addEventListener("pageshow", (event) => {
  if (event.persisted) dropBanners(); // back to a page that the browser has kept
  tick();
});
document.addEventListener("visibilitychange", tick);
setInterval(tick, TICK_MS);
setTimeout(pollHeader, pause());
keepRecent(document.documentElement.dataset.user ?? "");
