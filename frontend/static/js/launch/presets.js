/** Below the presets of the new-run form: the memory that each preset of a machine needs with the chosen group. */

import { make, must } from "../lib/format.js";

/** @typedef {{label: string, text: string, fits: boolean}} PresetMemory */

let shown = "";

/**
 * Requests the estimates where another group is chosen.
 * @param {string} group its id, or nothing
 */
export function showPresetMemory(group) {
  if (group === shown) return;
  shown = group;
  if (group === "") fill([]);
  else void request(group);
}

/** @param {string} group */
async function request(group) {
  try {
    const answer = await fetch(`${must("#preset-memory").dataset.url}?group=${encodeURIComponent(group)}`);
    const body = answer.ok ? await answer.json() : {};
    if (group === shown) fill(body.presets ?? []);
  } catch {
    shown = ""; // no connection: the next change asks again
  }
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
