/** The Rollouts tab: keys from rollout to rollout, formulas on request, and the rest of a long text. */

import { count, isTyping, make, must } from "../lib/format.js";

const page = must("#rollouts");
const MATHS = "maths";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  if (!["n", "p", "N", "P"].includes(event.key)) return;
  const link = document.querySelector(`a[data-key="${event.key}"]`);
  if (link instanceof HTMLAnchorElement) link.click();
});

const isAsked = () => new URLSearchParams(location.search).get(MATHS) === "1";

/** Links within this tab keep the switch. */
function keepSwitch() {
  for (const link of document.querySelectorAll("a[data-keep]")) {
    const address = new URL(/** @type {HTMLAnchorElement} */ (link).href);
    if (isAsked()) address.searchParams.set(MATHS, "1");
    else address.searchParams.delete(MATHS);
    /** @type {HTMLAnchorElement} */ (link).href = address.href;
  }
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
    const address = new URL(location.href);
    if (maths.checked) address.searchParams.set(MATHS, "1");
    else address.searchParams.delete(MATHS);
    history.replaceState(null, "", address);
    keepSwitch();
    showMaths();
  });
}

// Empty fields are left out of the address; the switch is kept.
document.querySelector("#filters")?.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  for (const field of form.querySelectorAll("input, select")) {
    const control = /** @type {HTMLInputElement} */ (field);
    if (control.value === "") control.disabled = true;
  }
  if (isAsked()) {
    const kept = make("input");
    kept.type = "hidden";
    [kept.name, kept.value] = [MATHS, "1"];
    form.append(kept);
  }
});
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("#filters :disabled")) /** @type {HTMLInputElement} */ (field).disabled = false;
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

keepSwitch();
showMaths();
const list = document.querySelector(".hits-scroll");
const line = document.querySelector(".hits .is-selected");
if (list && line instanceof HTMLElement) list.scrollTop = line.offsetTop - list.clientHeight / 2;
// The scroll position stays the same from rollout to rollout.
if (new URLSearchParams(location.search).has("rollout")) document.querySelector(".rollout-page")?.scrollIntoView();
