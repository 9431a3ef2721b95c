/** What the charts show: zoom, smoothing, axes, band and the chart in full, all stored in the page's address. */

/**
 * @typedef {{first: number | null, last: number | null, smooth: number, x: string, band: string, log: Set<string>, full: string, picture: string,
 *   sign: import("./series.js").Sign, panels: string | null, overlays: string[], isAlone: boolean}} ChartView overlays: ids of the runs behind this one; isAlone: not even the baseline; panels: their layout, null for the project's; sign: of the advantages that the heat map counts;
 *   picture: the large chart; empty for the one that has points.  first, last: the zoom, in steps; null if the whole run is shown.
 */

export const X_AXES = ["step", "rollouts", "tokens", "elapsed"];
export const BANDS = ["none", "range", "ci"];
/** @type {import("./series.js").Sign[]} */
const SIGNS = ["positive", "negative", "all"];
export const MOST_OVERLAYS = 4;
const RUN_ID = /^[0-9a-f-]{36}$/;
export const MOST_SMOOTHING = 0.99;
const LARGEST_STEP = 2 ** 31 - 1;

/** @param {string | null} text */
function step(text) {
  const number = Number(text);
  return text !== null && /^\d+$/.test(text) && number <= LARGEST_STEP ? number : null;
}

/**
 * @param {string} query of the address; unreadable values count as absent
 * @returns {ChartView}
 */
export function readView(query) {
  const parameters = new URLSearchParams(query);
  const smooth = Number(parameters.get("smooth") ?? 0);
  let [first, last] = [step(parameters.get("first")), step(parameters.get("last"))];
  if (first === null || last === null || first > last) first = last = null;
  return {
    first,
    last,
    smooth: smooth > 0 && smooth <= MOST_SMOOTHING ? smooth : 0,
    x: X_AXES.find((name) => name === parameters.get("x")) ?? "step",
    band: BANDS.find((name) => name === parameters.get("band")) ?? "none",
    log: new Set((parameters.get("log") ?? "").split(",").filter(Boolean)),
    full: parameters.get("full") ?? "",
    picture: parameters.get("picture") ?? "",
    panels: parameters.get("panels"),
    overlays: (parameters.get("overlay") ?? "").split(",").filter((id) => RUN_ID.test(id)).slice(0, MOST_OVERLAYS),
    isAlone: parameters.get("overlay") === "none",
    sign: SIGNS.find((name) => name === parameters.get("sign")) ?? "positive",
  };
}

/**
 * @param {ChartView} view
 * @param {string} query of the address so far, whose other parameters stay
 */
export function writeView(view, query) {
  const parameters = new URLSearchParams(query);
  /** @type {Record<string, string>} */
  const values = {
    first: view.first === null ? "" : String(view.first),
    last: view.last === null ? "" : String(view.last),
    smooth: view.smooth ? String(view.smooth) : "",
    x: view.x === "step" ? "" : view.x,
    band: view.band === "none" ? "" : view.band,
    log: [...view.log].sort().join(","),
    full: view.full,
    picture: view.picture,
    overlay: view.overlays.join(",") || (view.isAlone ? "none" : ""),
    sign: view.sign === "positive" ? "" : view.sign,
  };
  // An empty layout in the address is the one that every project begins with.
  if (view.panels === null) parameters.delete("panels");
  else parameters.set("panels", view.panels);
  for (const [name, value] of Object.entries(values)) {
    if (value) parameters.set(name, value);
    else parameters.delete(name);
  }
  return parameters.toString();
}
