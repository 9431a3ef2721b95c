/** What one chart draws, as columns of numbers: the same ones that its CSV holds. */

/**
 * One drawn column. raw: the last value of each bucket; low and high: of the bucket; seeds-low and seeds-high: of the band.
 * @typedef {"seeds-low" | "seeds-high" | "low" | "high" | "raw" | "smooth"} Role
 * @typedef {{role: Role, line: number}} Column
 * @typedef {{steps: number[], x: number[], values: (number | null)[][], numUnplaced: number, numNonPositive: number}} Table
 * @typedef {import("./series.js").Line} Line
 */

/** From the ground up: what is drawn later lies on top. @type {Role[]} */
export const ORDER = ["seeds-low", "seeds-high", "low", "high", "raw", "smooth"];

/**
 * The columns of a chart, in the order in which they are drawn.
 * @param {number} numLines
 * @param {{hasBands: boolean, hasShades: boolean, isSmoothed: boolean}} layout
 * @returns {Column[]}
 */
export function columnsOf(numLines, { hasBands, hasShades, isSmoothed }) {
  const roles = ORDER.filter(
    (role) => role === "raw" || (role === "smooth" && isSmoothed) || (role.startsWith("seeds") && hasBands) || ((role === "low" || role === "high") && hasShades),
  );
  return roles.flatMap((role) => Array.from({ length: numLines }, (_, line) => ({ role, line })));
}

/**
 * Exponential smoothing without the pull to 0 at the start: each weight is divided by the sum of those so far.
 * @param {number[]} values
 * @param {number} weight of what came before, 0 to below 1
 */
export function smoothed(values, weight) {
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

/**
 * @param {(Line | undefined)[]} lines in the order of the chart's
 * @param {(Line | undefined)[]} bands
 * @param {Column[]} columns
 * @param {{weight: number, isLog: boolean, place: (step: number) => number | null}} how
 * @returns {Table}
 */
export function tabulate(lines, bands, columns, { weight, isLog, place }) {
  const all = union([...lines, ...bands].flatMap((line) => (line ? [line.steps] : [])));
  const values = columns.map(({ role, line }) => {
    const from = role.startsWith("seeds") ? bands[line] : lines[line];
    return from ? spread(from.steps, numbers(from, role, weight), all) : all.map(() => null);
  });
  let numNonPositive = 0;
  if (isLog) {
    for (const [index, { role }] of columns.entries()) {
      values[index] = values[index].map((value) => (value === null || value > 0 ? value : (numNonPositive += Number(role === "raw"), null)));
    }
  }
  const places = all.map(place);
  const rows = places.flatMap((x, row) => (x === null ? [] : [row]));
  const isPlain = rows.length === all.length && places.every((x, row) => row === 0 || Number(x) >= Number(places[row - 1]));
  if (isPlain) return { steps: all, x: /** @type {number[]} */ (places), values, numUnplaced: 0, numNonPositive };
  rows.sort((a, b) => Number(places[a]) - Number(places[b]));
  return {
    steps: rows.map((row) => all[row]),
    x: rows.map((row) => Number(places[row])),
    values: values.map((column) => rows.map((row) => column[row])),
    numUnplaced: all.length - rows.length,
    numNonPositive,
  };
}

/**
 * @param {Line} line
 * @param {Role} role
 * @param {number} weight
 */
function numbers(line, role, weight) {
  if (role === "raw") return line.last;
  if (role === "smooth") return smoothed(line.last, weight);
  return (role.endsWith("low") ? line.low : line.high) ?? line.last;
}

/**
 * @param {number[][]} sorted ascending lists
 * @returns {number[]} all their numbers, ascending, each once
 */
function union(sorted) {
  const at = sorted.map(() => 0);
  /** @type {number[]} */
  const all = [];
  for (;;) {
    let next = Infinity;
    for (let i = 0; i < sorted.length; i++) if (at[i] < sorted[i].length && sorted[i][at[i]] < next) next = sorted[i][at[i]];
    if (next === Infinity) return all;
    all.push(next);
    for (let i = 0; i < sorted.length; i++) if (sorted[i][at[i]] === next) at[i] += 1;
  }
}

/**
 * @param {number[]} steps
 * @param {number[]} values
 * @param {number[]} all steps of the chart, these among them
 * @returns {(number | null)[]}
 */
function spread(steps, values, all) {
  let at = 0;
  return all.map((step) => (steps[at] === step ? values[at++] : null));
}
