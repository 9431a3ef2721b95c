/** The numbers of a chart as CSV; loaded on request. */

import { ORDER } from "./table.js";

/**
 * A cell that no spreadsheet runs as a formula.
 * @param {string} text
 */
function cell(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const ROLE_WORDS = { raw: "", smooth: " (smoothed)", low: " (lowest)", high: " (highest)", "seeds-low": " (seeds, low)", "seeds-high": " (seeds, high)" };

/**
 * The drawn numbers as CSV. A number's shortest decimal form reads back as the same number.
 * @param {import("./table.js").Table} table
 * @param {import("./table.js").Column[]} columns
 * @param {string[]} names of the lines
 * @param {{xName: string, isShown: (line: number) => boolean}} how xName: empty if the x axis is the step
 */
export function csvOf(table, columns, names, { xName, isShown }) {
  const visible = columns.flatMap((column, index) => (isShown(column.line) ? [{ ...column, index }] : []));
  visible.sort((a, b) => a.line - b.line || ORDER.indexOf(b.role) - ORDER.indexOf(a.role));
  const head = ["step", ...(xName ? [xName] : []), ...visible.map(({ role, line }) => names[line] + ROLE_WORDS[role])];
  const rows = table.steps.map((step, row) => [
    String(step),
    ...(xName ? [String(table.x[row])] : []),
    ...visible.map(({ index }) => String(table.values[index][row] ?? "")),
  ]);
  return [head.map(cell), ...rows].map((cells) => `${cells.join(",")}\r\n`).join("");
}

/**
 * A chart's CSV with a column for each line of another run; steps that only those have get a row of their own.
 * @param {string} csv
 * @param {{name: string, title: string, steps: number[], y: number[]}[]} ghosts
 */
export function withGhosts(csv, ghosts) {
  if (!ghosts.length) return csv;
  const [head, ...lines] = csv.trimEnd().split("\r\n");
  const blank = ",".repeat((lines[0] ?? head).split(",").length - 1);
  const rows = new Map(lines.map((line) => [Number(line.split(",", 1)[0]), line]));
  for (const { steps } of ghosts) for (const step of steps) if (!rows.has(step)) rows.set(step, `${step}${blank}`);
  const values = ghosts.map(({ steps, y }) => new Map(steps.map((step, row) => [step, y[row]])));
  const heads = ghosts.map(({ name, title }) => cell(`${title} (${name})`));
  const body = [...rows].sort(([a], [b]) => a - b).map(([step, line]) => [line, ...values.map((of) => String(of.get(step) ?? ""))].join(","));
  return [[head, ...heads].join(","), ...body].map((line) => `${line}\r\n`).join("");
}
