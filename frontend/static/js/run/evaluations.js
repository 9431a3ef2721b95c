/** The Evaluations tab: keys from question to question, and addresses without empty parts. */

import { isTyping } from "../lib/format.js";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  const link = [...document.querySelectorAll("a[data-key]")].find((one) => one instanceof HTMLAnchorElement && one.dataset.key === event.key);
  if (link instanceof HTMLAnchorElement) link.click();
});

// Empty fields are left out of the address.
const choice = document.querySelector(".answer-choice");
choice?.addEventListener("submit", () => {
  for (const field of choice.querySelectorAll("input, select")) {
    const control = /** @type {HTMLInputElement} */ (field);
    if (control.value === "") control.disabled = true;
  }
});
addEventListener("pageshow", () => {
  for (const field of choice?.querySelectorAll(":disabled") ?? []) /** @type {HTMLInputElement} */ (field).disabled = false;
});
