/**
 * Keys of every page: Ctrl or Cmd K searches, ? lists the keys, / goes to the filter of the page, g and then r, q or l
 * to a page.
 */

import { count, isTyping, make, must } from "./format.js";

const SECOND_KEY_MS = 1500;
const TYPING_PAUSE_MS = 150;

/** @typedef {Api.SearchResult} Result */

const search = /** @type {HTMLDialogElement} */ (must("#search-dialog"));
const help = /** @type {HTMLDialogElement} */ (must("#keys-dialog"));
const words = /** @type {HTMLInputElement} */ (must("#search-words"));
const list = must("#search-found");
const summary = must("#search-said");
let newest = 0;
let pause = 0;

/** Links that the search finds by itself: the rail's pages; once something is typed, actions and account pages too. */
const PAGES = ".rail-list a";
const OF_RUN = ".run-menu .menu-list > a";
const MORE = `${PAGES}, ${OF_RUN}, #search-more a`;

/** @param {HTMLAnchorElement} link */
const kindOf = (link) => link.dataset.kind ?? (link.matches(OF_RUN) ? "this run" : "page");

/** @returns {Result[]} pages and actions whose names contain the words */
function pages() {
  const part = words.value.trim().toLowerCase();
  const links = [...document.querySelectorAll(part ? MORE : PAGES)].filter((link) => link instanceof HTMLAnchorElement);
  return links
    .map((link) => ({ kind: kindOf(link), name: link.textContent?.trim() ?? "", url: link.getAttribute("href") ?? "" }))
    .filter(({ name }) => name.toLowerCase().includes(part));
}

/** @param {Result[]} results */
function show(results) {
  list.replaceChildren(
    ...results.map(({ kind, name, url }) => {
      const link = make("a");
      link.href = url;
      link.append(make("span", "", name), make("span", "small quiet", kind));
      const item = make("li");
      item.append(link);
      return item;
    }),
  );
  summary.textContent = results.length ? `${count(results.length)} found` : "No results. Try a run, model, page or action.";
}

async function look() {
  const mine = (newest += 1);
  const text = words.value.trim();
  if (!text) return show(pages());
  const answer = await fetch(`${search.dataset.url}?q=${encodeURIComponent(text)}`).catch(() => null);
  if (mine !== newest) return; // more was typed meanwhile
  if (answer?.ok && !answer.redirected) {
    const { found, passages = [] } = await answer.json();
    show([...pages(), ...found, ...passages]);
  } else {
    show(pages());
    summary.textContent = "Pages only: the server did not answer.";
  }
}

/** @param {HTMLDialogElement} dialog */
function open(dialog) {
  for (const other of [search, help]) if (other !== dialog) other.close();
  if (!dialog.open) dialog.showModal();
  if (dialog !== search) return;
  words.select();
  look();
}

/** Arrow keys move through the input and the results. @param {number} places */
function move(places) {
  const stops = [words, ...list.querySelectorAll("a")];
  const at = stops.findIndex((stop) => stop === document.activeElement);
  stops[Math.min(Math.max(at + places, 0), stops.length - 1)].focus();
}

words.addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(look, TYPING_PAUSE_MS);
});
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Enter" && event.target === words) {
    event.preventDefault(); // else it would press Close
    list.querySelector("a")?.click();
  }
});
for (const dialog of [search, help]) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside what is in it
  });
}
for (const button of document.querySelectorAll("[data-open]")) {
  if (!(button instanceof HTMLElement)) continue;
  button.hidden = false; // without this file it would do nothing
  button.addEventListener("click", () => open(button.dataset.open === search.id ? search : help));
}

let isAfterG = false;
let forget = 0;

/** @param {string} key */
function go(key) {
  const link = isAfterG ? document.querySelector(`a[data-go="${CSS.escape(key)}"]`) : null;
  clearTimeout(forget);
  isAfterG = key === "g" && !link;
  if (isAfterG) forget = setTimeout(() => (isAfterG = false), SECOND_KEY_MS);
  if (link instanceof HTMLAnchorElement) location.href = link.href;
}

/** The field that filters or searches the list of the page, else the first filter link; null without either. */
function filterOfPage() {
  const fields = ['main input[type="search"]', "main a.filter"].flatMap((way) => [...document.querySelectorAll(way)]);
  return fields.find((one) => one instanceof HTMLElement && one.checkVisibility()) ?? null;
}

/** @param {KeyboardEvent} event */
function goToFilter(event) {
  const filter = filterOfPage();
  if (!(filter instanceof HTMLElement)) return;
  event.preventDefault(); // else the key would be typed there
  filter.focus();
  if (filter instanceof HTMLInputElement) filter.select();
}

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    open(search);
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event) || document.querySelector("dialog[open]")) return;
  if (event.key === "?") open(help);
  else if (event.key === "/") goToFilter(event);
  else go(event.key);
});
