/** How a chart is drawn: the options of uPlot for its lines, or for the lanes of its heat map. */

import { cut } from "../lib/format.js";
import { colour, drawBand, drawBars, drawEvents, drawGhost, drawLane, drawMarks, drawZero, padded } from "./paint.js";

/** Whole steps, rollouts, tokens and seconds. */
const INCREMENTS = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
/** Of the lanes above and below the band. */
const LANE_COLOURS = ["--blue", "--amber"];
/** Pixels beside the names of a heat map's pairs, and of one character of them. */
const [AXIS_PAD, CHARACTER] = [16, 6.2];

/** @typedef {import("./chart.js").Chart} Chart */

/**
 * @param {Chart} chart
 * @param {{moved: () => void, dragged: (plot: uPlot) => void}} acts of the cursor
 * @returns {uPlot.Options}
 */
export function plotOptions(chart, acts) {
  const axis = { stroke: () => colour("--quiet"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false }, font: "11px Inter, system-ui, sans-serif" };
  const { spec, host } = chart;
  return {
    width: chart.width,
    height: chart.height,
    legend: { show: false },
    cursor: {
      // Only the cursor's place is shared; a drag zooms all charts by their common range.
      sync: { key: "run", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      points: { size: 6 },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => (host.unzoom(), null) },
    },
    hooks: {
      setCursor: [acts.moved],
      setSelect: [acts.dragged],
      drawAxes: [(plot) => (spec.lanes ? drawLanes(plot, chart) : (drawShades(plot, chart), drawGhosts(plot, chart))), ...(spec.zero ? [drawZero] : [])],
      draw: [(plot) => drawMarks(plot, host.marks(spec.key)), ...(spec.hero ? [(/** @type {uPlot} */ plot) => drawEvents(plot, host.events())] : [])],
    },
    scales: { x: { time: false, range: () => host.xRange() }, y: yScale(chart) },
    axes: [
      { ...axis, size: 26, space: chart.isFull ? 80 : 48, incrs: INCREMENTS, values: (_, splits) => splits.map(short) },
      spec.lanes ? laneAxis(chart, axis) : { ...axis, size: 48, space: 28, ...(chart.isLog ? {} : { values: (/** @type {uPlot} */ _, /** @type {number[]} */ splits) => splits.map((split) => String(Number(split.toPrecision(3)))) }) },
    ],
    series: [{}, ...chart.columns.map((column) => series(chart, column))],
  };
}

/** @param {Chart} chart @returns {uPlot.Scale} */
function yScale(chart) {
  const { range, zero, lanes } = chart.spec;
  if (lanes) return { range: [0, chart.lines.length] };
  if (chart.isLog) return { distr: 3, log: 10, range: (_, low, high) => (low === null || high === null || !(low > 0) ? [0.1, 1] : uPlot.rangeLog(low, high, 10, false)) };
  return { range: range ? () => range : (_, low, high) => padded(...rangeWithGhosts(chart, low, high), zero) };
}

/**
 * @param {Chart} chart
 * @param {import("./table.js").Column} column with smoothing the raw one is faint
 * @returns {uPlot.Series}
 */
function series(chart, { role, line }) {
  const { colour: own, dash } = chart.lines[line];
  const show = !chart.off.has(line);
  // Shades and bands are painted by drawShades; as series they only take part in the y axis' range.
  if ((role !== "raw" && role !== "smooth") || chart.spec.lanes) return { show, paths: () => null, points: { show: false } };
  const isFaint = role === "raw" && chart.isSmoothed;
  const isDotted = chart.spec.points && role === "raw" && chart.host.store.width === 1;
  // One pixel of the device is painted in a thirtieth of the time of a wider line, and of a dense one shows more.
  const thin = chart.isDense ? 1 / devicePixelRatio : 1.75;
  return {
    show,
    stroke: () => colour(own, isFaint ? 35 : 100),
    width: isFaint ? Math.min(1, thin) : role === "smooth" ? 2.25 : thin,
    dash: isFaint ? [] : dash,
    spanGaps: true,
    points: isDotted ? { show: true, size: 6, stroke: () => colour(own), fill: () => colour("--surface") } : { show: (plot) => plot.data[0].length === 1, size: 5 },
  };
}

/** The range of the y axis with the lines of other runs. @param {Chart} chart @param {number | null} low @param {number | null} high @returns {[number | null, number | null]} */
function rangeWithGhosts(chart, low, high) {
  const [first, last] = chart.host.xRange();
  for (const { x, y } of chart.ghostLines()) {
    y.forEach((value, row) => {
      if (x[row] < first || x[row] > last) return;
      low = Math.min(low ?? value, value);
      high = Math.max(high ?? value, value);
    });
  }
  return [low, high];
}

/** @param {uPlot} plot @param {Chart} chart */
function drawGhosts(plot, chart) {
  for (const { x, y, dash, colour: own } of chart.ghostLines()) drawGhost(plot, x, y, dash, colour(own, 50));
}

/** The y axis of a heat map: the name of each pair at the middle of its lanes. @param {Chart} chart @param {uPlot.Axis} axis @returns {uPlot.Axis} */
function laneAxis(chart, axis) {
  const { lines } = chart;
  const lanes = chart.spec.lanes?.length ?? 1;
  const middles = Array.from({ length: lines.length / lanes }, (_, pair) => lines.length - (pair + 0.5) * lanes);
  const pairs = middles.map((_, pair) => lines[pair * lanes].key.split("\n"));
  const widest = Math.max(0, ...pairs.map(([learner, source]) => cut(learner).length + cut(source).length + 3));
  const size = () => Math.min(0.4 * chart.width, AXIS_PAD + CHARACTER * widest);
  // On a narrow screen both names are shortened alike.
  const most = () => Math.max(4, Math.floor(((size() - AXIS_PAD) / CHARACTER - 3) / 2));
  const shortened = (/** @type {string} */ name) => (name.length > most() && cut(name).length > most() ? `${name.slice(0, most() - 3)}…${name.slice(-2)}` : cut(name));
  return { ...axis, grid: { show: false }, size, splits: () => middles, values: () => pairs.map((names) => names.map(shortened).join(" ← ")) };
}

/** A heat map: of each pair two lanes, above the band and below it. @param {uPlot} plot @param {Chart} chart */
function drawLanes(plot, chart) {
  const { x, values } = chart.table;
  chart.columns.forEach(({ role, line }, index) => {
    if (role !== "raw" || chart.off.has(line)) return;
    const top = chart.lines.length - line;
    const isFirst = chart.lines[line].lane === 0;
    drawLane(plot, x, values[index], [top - (isFirst ? 0.12 : 0), top - 1 + (isFirst ? 0.04 : 0.12)], LANE_COLOURS[chart.lines[line].lane]);
  });
}

/** The bands over seeds, and over them the shades of what buckets hide. @param {uPlot} plot @param {Chart} chart */
function drawShades(plot, chart) {
  const { x, values } = chart.table;
  chart.columns.forEach(({ role, line }, index) => {
    if (chart.off.has(line) || (role !== "low" && role !== "seeds-low")) return;
    const upper = chart.columns.findIndex((column) => column.line === line && column.role === role.replace("low", "high"));
    const fill = colour(chart.lines[line].colour, role === "low" ? 55 : 16);
    (role === "low" ? drawBars : drawBand)(plot, x, values[index], values[upper], fill);
  });
}

/** @param {number} value on an axis of counts */
function short(value) {
  for (const [unit, size] of /** @type {[string, number][]} */ ([["G", 1e9], ["M", 1e6], ["k", 1e3]])) {
    if (Math.abs(value) >= size * 10) return `${Number((value / size).toPrecision(4))}${unit}`;
  }
  return String(Number(value.toPrecision(6)));
}
