/** The pages that this browser showed last, for the page of a missing address. They are kept by user, in the browser alone. */

import { make } from "./format.js";

const KEPT = 6;
const SUFFIX = " · HACRL Web";

/** Keeps this page, or lists the last ones where an address was not found. @param {string} user */
export function keepRecent(user) {
  const key = `recent:${user}`;
  const pages = read(key);
  const place = document.querySelector("[data-recent]");
  if (place instanceof HTMLElement) return list(place, pages);
  if (document.querySelector("[data-error]")) return;
  const path = location.pathname + location.search;
  const page = { path, title: document.title.replace(SUFFIX, "").replace(/^\d+\/\d+ · /, "") };
  try {
    localStorage.setItem(key, JSON.stringify([page, ...pages.filter((one) => one.path !== path && one.title !== page.title)].slice(0, KEPT)));
  } catch {
    // Without storage the page of a missing address lists none.
  }
}

/** @param {string} key @returns {{path: string, title: string}[]} the newest first */
function read(key) {
  try {
    const pages = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(pages) ? pages.filter((one) => typeof one?.path === "string" && one.path.startsWith("/") && !one.path.startsWith("//") && typeof one.title === "string") : [];
  } catch {
    return [];
  }
}

/** @param {HTMLElement} place @param {{path: string, title: string}[]} pages */
function list(place, pages) {
  const links = make("ul");
  for (const { path, title } of pages) {
    const link = make("a", "", title);
    link.href = path;
    const item = make("li");
    item.append(link);
    links.append(item);
  }
  place.querySelector("ul")?.replaceWith(links);
  place.hidden = !pages.length;
}
