/** The presets of the new-run form: tiles, each with whether it fits the chosen group, how long it takes, and the recommended one. */

import { duration, make, must } from "../lib/format.js";

/**
 * @typedef {{name: string, misfit: string, text: string, seconds: number | null}} Tile
 * @typedef {{label: string, reason: string, values: Record<string, string | number | boolean>,
 *   confirm: {field: string, value: string, text: string}[]}} Recommendation
 */

let shown = "";

/**
 * Requests what the tiles say where another group or benchmark is chosen.
 * @param {string} group its id, or nothing
 * @param {string} benchmark its id, or nothing
 * @param {(best: Recommendation) => void} use
 */
export function showTiles(group, benchmark, use) {
  const query = new URLSearchParams({ group, benchmark }).toString();
  if (query === shown) return;
  shown = query;
  void request(query, use);
}

/** @returns {HTMLButtonElement[]} */
function buttons() {
  return [...must("#tiles").querySelectorAll("button")];
}

/** @param {string} name of the preset that the settings have; empty: of none */
export function pressTile(name) {
  for (const tile of buttons()) tile.setAttribute("aria-pressed", String(tile.dataset.preset === name));
}

/**
 * @param {string} query
 * @param {(best: Recommendation) => void} use
 */
async function request(query, use) {
  try {
    const answer = await fetch(`${must("#tiles").dataset.url}?${query}`);
    const body = answer.ok ? await answer.json() : {};
    if (query !== shown) return;
    for (const tile of buttons()) fill(tile, (body.presets ?? []).find((/** @type {Tile} */ one) => one.name === tile.dataset.preset));
    offer(body.recommended ?? null, use);
  } catch {
    shown = ""; // no connection: the next change asks again
  }
}

/** @param {HTMLButtonElement} tile @param {Tile | undefined} row */
function fill(tile, row) {
  const words = row ? [row.misfit || "fits", row.misfit ? "" : row.text, row.seconds === null ? "" : `about ${duration(row.seconds)}`] : [];
  must("span", tile).textContent = words.filter(Boolean).join(", ");
  tile.classList.toggle("does-not-fit", Boolean(row?.misfit));
}

/**
 * @param {Recommendation | null} best
 * @param {(best: Recommendation) => void} use
 */
function offer(best, use) {
  must("#recommended").hidden = best === null;
  must("#recommended p").textContent = best?.reason ?? "";
  must("#recommended button").onclick = () => best && use(best);
}
