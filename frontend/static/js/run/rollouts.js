/** The Rollouts tab: keys from rollout to rollout, formulas on request, and the rest of a long text. */

import { count, isTyping, make, must } from "../lib/format.js";

const page = must("#rollouts");
const MATHS = "maths";
const PART = "part";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  if (!["n", "p", "N", "P"].includes(event.key)) return;
  const link = document.querySelector(`a[data-key="${event.key}"]`);
  if (link instanceof HTMLAnchorElement) link.click();
});

const isAsked = () => new URLSearchParams(location.search).get(MATHS) === "1";

/** Writes a switch of the page into its address and its links; an empty value takes it out. @param {string} name @param {string} value */
function write(name, value) {
  const address = new URL(location.href);
  if (value) address.searchParams.set(name, value);
  else address.searchParams.delete(name);
  history.replaceState(null, "", address);
  keepSwitches();
}

/** Links within this tab keep the switches. */
function keepSwitches() {
  const here = new URLSearchParams(location.search);
  for (const link of document.querySelectorAll("a[data-keep]")) {
    const address = new URL(/** @type {HTMLAnchorElement} */ (link).href);
    for (const name of [MATHS, PART]) {
      const value = here.get(name);
      if (value) address.searchParams.set(name, value);
      else address.searchParams.delete(name);
    }
    /** @type {HTMLAnchorElement} */ (link).href = address.href;
  }
}

// The answers, or the weight of the selected rollout: links, which switch without loading the page again.
const tabs = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".parts [role='tab']")]);

/** @param {HTMLElement} chosen */
function openPart(chosen) {
  for (const tab of tabs) {
    tab.setAttribute("aria-selected", String(tab === chosen));
    tab.tabIndex = tab === chosen ? 0 : -1;
    must(`#${tab.getAttribute("aria-controls")}`).hidden = tab !== chosen;
  }
}

for (const tab of tabs) {
  tab.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openPart(tab);
    write(PART, tab.dataset.part ?? "");
  });
  tab.addEventListener("keydown", (event) => {
    if (![" ", "ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === " ") return tab.click();
    const other = tabs[(tabs.indexOf(tab) + 1) % tabs.length];
    other.focus();
    other.click();
  });
}

/** Draws the formulas of each text below it, or removes the drawings; the text itself stays. */
async function showMaths() {
  for (const drawing of page.querySelectorAll(".maths")) drawing.remove();
  if (!isAsked()) return;
  const { drawn } = await import("../lib/maths.js"); // half a megabyte, so loaded on request
  for (const text of page.querySelectorAll("[data-maths]")) text.after(drawn(text.textContent ?? ""));
}

const maths = document.querySelector("#maths");
if (maths instanceof HTMLInputElement) {
  maths.checked = isAsked();
  maths.addEventListener("change", () => {
    write(MATHS, maths.checked ? "1" : "");
    showMaths();
  });
}

// The query bar: what is typed is completed word by word, and Backspace in an empty bar removes the last chip.
const bar = /** @type {HTMLInputElement | null} */ (document.querySelector("#query"));
const options = /** @type {HTMLOptionElement[]} */ ([...document.querySelectorAll("#query-words option")]);
const words = options.map((option) => option.value);
bar?.addEventListener("input", () => {
  const before = bar.value.replace(/(?:\w+:)?(?:"[^"]*"?|\S*)$/, "");
  options.forEach((option, place) => (option.value = before + words[place]));
});
bar?.addEventListener("keydown", (event) => {
  const last = [...document.querySelectorAll("a[data-chip]")].pop();
  if (event.key === "Backspace" && !bar.value && last instanceof HTMLAnchorElement) last.click();
});

// What is drawn stays drawn.
document.querySelector("#filters")?.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  for (const name of [MATHS, PART]) {
    const value = new URLSearchParams(location.search).get(name);
    if (!value) continue;
    const switched = make("input");
    switched.type = "hidden";
    [switched.name, switched.value] = [name, value];
    form.append(switched);
  }
});

for (const button of page.querySelectorAll("[data-whole]")) {
  button.addEventListener("click", async () => {
    const seq = /** @type {HTMLElement} */ (button).dataset.whole ?? "";
    const answer = await fetch(`${page.dataset.text}?seq=${seq}&shown=true`).catch(() => null);
    const rollout = answer?.ok ? (await answer.json()).rollout : null;
    const text = button.closest("article")?.querySelector("[data-maths]");
    if (!rollout || !text) {
      button.textContent = "The server does not answer. Try again";
      return;
    }
    text.textContent = rollout.completion;
    button.replaceWith(rollout.shown < rollout.length ? `The first ${count(rollout.shown)} of ${count(rollout.length)} characters.` : "");
    showMaths();
  });
}

keepSwitches();
showMaths();
const list = document.querySelector(".hits-scroll");
const line = document.querySelector(".hits .is-selected");
if (list && line instanceof HTMLElement) list.scrollTop = line.offsetTop - list.clientHeight / 2;
// The scroll position stays the same from rollout to rollout.
if (new URLSearchParams(location.search).has("rollout")) document.querySelector(".rollout-page")?.scrollIntoView();
