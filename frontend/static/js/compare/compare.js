/** The picture of the Compare page: one line for each run and agent, zoomed on the server. Its state is the address. */

import { colour } from "../lib/figures.js";
import { DASHES, cut, make, must, readJson, metricNumber } from "../lib/format.js";

const HEIGHT = 320;
/** By the agent's place: the first is solid. */
const AGENT_DASHES = [[], ...DASHES.slice(0, 7)];

/** @typedef {Api.ComparedLine} Line */

/** @type {{url: string, runs: string[], colours: number[], agents: string[], metric: string, axis: string}} */
const settings = readJson("compare-data");
const frame = must("#compare-chart");
const note = must("#compare-empty");
const reset = must("#reset");
/** @type {uPlot | null} */
let plot = null;
let requests = 0;

/** @param {string} agent */
const dashOf = (agent) => AGENT_DASHES[Math.max(0, settings.agents.indexOf(agent)) % AGENT_DASHES.length];

function showDashes() {
  const list = must("#dashes");
  for (const [place, agent] of settings.agents.entries()) {
    const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    sample.setAttribute("class", "dash");
    sample.setAttribute("viewBox", "0 0 28 8");
    sample.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [name, value] of Object.entries({ x1: 0, x2: 28, y1: 4, y2: 4 })) line.setAttribute(name, String(value));
    line.setAttribute("stroke-dasharray", AGENT_DASHES[place % AGENT_DASHES.length].join(" "));
    sample.append(line);
    const label = make("span", "", cut(agent));
    label.title = agent;
    list.append(sample, label);
  }
}

/** @returns {[number, number] | null} the zoom that the address names */
function zoom() {
  const query = new URLSearchParams(location.search);
  const low = Number(query.get("low") ?? NaN);
  const high = Number(query.get("high") ?? NaN);
  return Number.isFinite(low) && Number.isFinite(high) && low < high ? [low, high] : null;
}

/**
 * @param {string} address
 * @param {[number, number] | null} range
 */
function zoomed(address, range) {
  const url = new URL(address);
  url.searchParams.delete("low");
  url.searchParams.delete("high");
  if (range) {
    url.searchParams.set("low", String(Number(range[0].toPrecision(6))));
    url.searchParams.set("high", String(Number(range[1].toPrecision(6))));
  }
  return url.href;
}

/** @param {[number, number] | null} range */
function setZoom(range) {
  history.replaceState(null, "", zoomed(location.href, range));
  load();
}

/** Links that change the runs or the baseline but not the axis keep its zoom. */
function passZoomOn() {
  for (const link of document.querySelectorAll("a[data-keeps-zoom]")) {
    if (link instanceof HTMLAnchorElement) link.href = zoomed(link.href, zoom());
  }
}

/**
 * @param {Line[]} lines
 * @returns {uPlot.Options}
 */
function options(lines) {
  const axis = { stroke: () => colour("--quiet"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false }, font: "11px Inter, system-ui, sans-serif" };
  /** @param {number} value */
  const short = (value) => String(Number(value.toPrecision(6)));
  return {
    width: Math.max(200, Math.floor(frame.clientWidth)),
    height: HEIGHT,
    cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 }, bind: { dblclick: () => () => (setZoom(null), null) } },
    legend: { live: true, markers: { dash: (_, index) => (dashOf(lines[index - 1]?.agent ?? "").length ? "dashed" : "solid") } },
    hooks: { setSelect: [selected], setCursor: [showLast] },
    scales: { x: { time: false } },
    axes: [
      { ...axis, size: 40, label: settings.axis, labelSize: 16, labelFont: "11px Inter, system-ui, sans-serif", values: (_, splits) => splits.map(short) },
      { ...axis, size: 56, values: (_, splits) => splits.map(short) },
    ],
    series: [
      { label: settings.axis, value: (_, x) => (x === null || x === undefined ? "last value" : short(x)) },
      ...lines.map((line) => ({
        label: settings.agents.length > 1 ? `${cut(line.agent)} · ${settings.runs[line.run]}` : settings.runs[line.run],
        stroke: () => colour(`--agent-${settings.colours[line.run]}`),
        width: 1.75,
        dash: dashOf(line.agent),
        spanGaps: true,
        points: { show: line.x.length < 40, size: 5 },
        value: (/** @type {uPlot} */ _, /** @type {number | null} */ value) => metricNumber(settings.metric, value),
      })),
    ],
  };
}

/** @param {uPlot} drawn */
function selected(drawn) {
  if (drawn.select.width < 4) return;
  const low = drawn.posToVal(drawn.select.left, "x");
  const high = drawn.posToVal(drawn.select.left + drawn.select.width, "x");
  drawn.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  setZoom([low, high]);
}

/**
 * Without a cursor over the picture, the legend shows where each line ends.
 * @param {uPlot} drawn
 */
function showLast(drawn) {
  if ((drawn.cursor.left ?? -1) >= 0) return;
  const ends = drawn.data.map((values) => values.findLastIndex((value) => value !== null && value !== undefined));
  ends[0] = -1; // each line ends at its own place
  queueMicrotask(() => drawn.setLegend({ idxs: ends }, false));
}

/** @param {Line[]} all */
function draw(all) {
  const lines = all.filter((line) => line.x.length);
  plot?.destroy();
  plot = null;
  note.hidden = lines.length > 0;
  note.textContent = settings.metric ? "No points here." : "These runs have recorded no metric yet.";
  frame.dataset.lines = String(lines.length);
  frame.dataset.points = String(lines.reduce((sum, line) => sum + line.x.length, 0));
  if (!lines.length) return;
  const table = uPlot.join(lines.map((line) => /** @type {uPlot.AlignedData} */ ([line.x, line.y])));
  plot = new uPlot(options(lines), table, frame);
  showLast(plot);
}

async function load() {
  const range = zoom();
  reset.hidden = range === null;
  passZoomOn();
  const request = (requests += 1);
  const url = range ? `${settings.url}&low=${Math.max(0, range[0])}&high=${Math.max(0, range[1])}` : settings.url;
  const answer = await fetch(url).catch(() => null);
  if (request !== requests) return; // a later zoom has been requested
  if (answer?.ok) draw((await answer.json()).lines);
  else {
    note.hidden = false;
    note.textContent = "The numbers could not be fetched. Reload this page to try again.";
  }
}

reset.addEventListener("click", () => setZoom(null));
addEventListener("popstate", load);
new ResizeObserver(() => {
  const width = Math.floor(frame.clientWidth);
  if (plot && width > 0 && width !== plot.width) plot.setSize({ width, height: HEIGHT });
}).observe(frame);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot?.redraw(false, true));
// A change of metric or axis is a new address, without the zoom of the old axis.
for (const choice of document.querySelectorAll("#compare-form select")) {
  choice.addEventListener("change", () => /** @type {HTMLFormElement} */ (must("#compare-form")).requestSubmit());
}
showDashes();
load();
