/** A benchmark's page: draws the mathematics of its questions below their text, on request. */

import { letFocus } from "../lib/scroller.js";

const MATHS = "maths";
const box = document.querySelector("#maths");
// Read once, because changing a link makes its address absolute.
const links = [...document.querySelectorAll('a[href^="?"]')].map((link) => /** @type {HTMLAnchorElement} */ (link));

/** Draws the mathematics below each text, or removes the drawings. */
async function showMaths() {
  for (const drawing of document.querySelectorAll(".maths")) drawing.remove();
  if (!isOn()) return;
  const { drawn, pieces } = await import("../lib/maths.js"); // half a megabyte, so loaded on request
  for (const text of document.querySelectorAll("[data-maths]")) {
    const source = text.textContent ?? "";
    // A reference answer is a formula without its dollar signs.
    const isBare = /** @type {HTMLElement} */ (text).dataset.maths === "answer" && !source.includes("$") && /[\\^_]/.test(source);
    const formula = isBare ? `\\(${source}\\)` : source;
    if (!pieces(formula).some((piece) => piece.formula !== undefined)) continue;
    const drawing = drawn(formula);
    text.after(drawing);
    letFocus(drawing);
  }
}

const isOn = () => new URLSearchParams(location.search).get(MATHS) === "1";

/** Keeps the switch in the links and the search form of this page. */
function keepSwitch() {
  for (const link of links) {
    const address = new URL(link.href);
    if (isOn()) address.searchParams.set(MATHS, "1");
    else address.searchParams.delete(MATHS);
    link.href = address.href;
  }
  const form = document.querySelector(".question-search");
  form?.querySelector(`input[name="${MATHS}"]`)?.remove();
  if (!form || !isOn()) return;
  const field = document.createElement("input");
  [field.type, field.name, field.value] = ["hidden", MATHS, "1"];
  form.append(field);
}

if (box instanceof HTMLInputElement) {
  box.checked = isOn();
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
