/** One benchmark's page: draws the mathematics of its questions on request; the text itself stays. */

const MATHS = "maths";
const box = document.querySelector("#maths");

/** Draws below each text, or takes the drawings away. */
async function showMaths() {
  for (const drawing of document.querySelectorAll(".maths")) drawing.remove();
  if (!isAsked()) return;
  const { drawn } = await import("./maths.js"); // half a megabyte, for those who ask
  for (const text of document.querySelectorAll("[data-maths]")) {
    const written = text.textContent ?? "";
    // A reference answer is a formula without its dollar signs.
    const isBare = /** @type {HTMLElement} */ (text).dataset.maths === "answer" && !written.includes("$") && /[\\^_]/.test(written);
    text.after(drawn(isBare ? `\\(${written}\\)` : written));
  }
}

const isAsked = () => new URLSearchParams(location.search).get(MATHS) === "1";

/** Links and the search within this page keep the switch. */
function keepSwitch() {
  for (const link of document.querySelectorAll('a[href^="?"]')) {
    const address = new URL(/** @type {HTMLAnchorElement} */ (link).href);
    if (isAsked()) address.searchParams.set(MATHS, "1");
    else address.searchParams.delete(MATHS);
    /** @type {HTMLAnchorElement} */ (link).href = address.href;
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
