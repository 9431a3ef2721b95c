/** One benchmark's page: draws the mathematics of its questions on request; the text itself stays. */

import { letFocus } from "../lib/scroller.js";

const MATHS = "maths";
const box = document.querySelector("#maths");
// Once: the addresses are written out in full as they are changed.
const links = [...document.querySelectorAll('a[href^="?"]')].map((link) => /** @type {HTMLAnchorElement} */ (link));

/** Draws below each text, or takes the drawings away. */
async function showMaths() {
  for (const drawing of document.querySelectorAll(".maths")) drawing.remove();
  if (!isAsked()) return;
  const { drawn, pieces } = await import("../lib/maths.js"); // half a megabyte, for those who ask
  for (const text of document.querySelectorAll("[data-maths]")) {
    const written = text.textContent ?? "";
    // A reference answer is a formula without its dollar signs.
    const isBare = /** @type {HTMLElement} */ (text).dataset.maths === "answer" && !written.includes("$") && /[\\^_]/.test(written);
    const shown = isBare ? `\\(${written}\\)` : written;
    if (!pieces(shown).some((piece) => piece.formula !== undefined)) continue;
    const drawing = drawn(shown);
    text.after(drawing);
    letFocus(drawing);
  }
}

const isAsked = () => new URLSearchParams(location.search).get(MATHS) === "1";

/** Links and the search within this page keep the switch. */
function keepSwitch() {
  for (const link of links) {
    const address = new URL(link.href);
    if (isAsked()) address.searchParams.set(MATHS, "1");
    else address.searchParams.delete(MATHS);
    link.href = address.href;
  }
  const form = document.querySelector(".question-search");
  form?.querySelector(`input[name="${MATHS}"]`)?.remove();
  if (!form || !isAsked()) return;
  const kept = document.createElement("input");
  [kept.type, kept.name, kept.value] = ["hidden", MATHS, "1"];
  form.append(kept);
}

if (box instanceof HTMLInputElement) {
  box.checked = isAsked();
  box.addEventListener("change", () => {
    const address = new URL(location.href);
    if (box.checked) address.searchParams.set(MATHS, "1");
    else address.searchParams.delete(MATHS);
    history.replaceState(null, "", address);
    keepSwitch();
    showMaths();
  });
}
keepSwitch();
showMaths();
