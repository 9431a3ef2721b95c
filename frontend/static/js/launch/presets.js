/** Beside the presets of the new-run form: what is recommended for the chosen group, and what presets of machines need. */

import { make, must } from "../lib/format.js";

/**
 * @typedef {{label: string, text: string, fits: boolean}} PresetMemory
 * @typedef {{label: string, reason: string, values: Record<string, string | number | boolean>,
 *   confirm: {field: string, value: string, text: string}[]}} Recommendation
 */

let shown = "";

/**
 * Requests both where another group or benchmark is chosen.
 * @param {string} group its id, or nothing
 * @param {string} benchmark its id, or nothing
 * @param {(best: Recommendation) => void} use
 */
export function showRecommended(group, benchmark, use) {
  const query = new URLSearchParams({ group, benchmark }).toString();
  if (query === shown) return;
  shown = query;
  if (group === "") {
    fill([]);
    offer(null, use);
  } else void request(query, use);
}

/**
 * @param {string} query
 * @param {(best: Recommendation) => void} use
 */
async function request(query, use) {
  try {
    const answer = await fetch(`${must("#preset-memory").dataset.url}?${query}`);
    const body = answer.ok ? await answer.json() : {};
    if (query !== shown) return;
    fill(body.presets ?? []);
    offer(body.recommended ?? null, use);
  } catch {
    shown = ""; // no connection: the next change asks again
  }
}

/**
 * @param {Recommendation | null} best
 * @param {(best: Recommendation) => void} use
 */
function offer(best, use) {
  const box = must("#recommended");
  box.hidden = best === null;
  must("#recommended p").textContent = best?.reason ?? "";
  must("#recommended button").onclick = () => best && use(best);
}

/** @param {PresetMemory[]} presets */
function fill(presets) {
  const box = must("#preset-memory");
  box.hidden = presets.length === 0;
  const lines = presets.map(({ label, text, fits }) => {
    const line = make("li");
    line.append(make("strong", "", label), ": ");
    if (!fits) line.append(make("span", "does-not-fit", "does not fit."), " ");
    line.append(text);
    return line;
  });
  must("#preset-memory ul").replaceChildren(...lines);
}
