/**
 * Draws the formulas in a model's text. The text is never markup: KaTeX builds elements, what it cannot read stays
 * text, commands that link, load or style are refused, and every text has a bound on formulas, length and time.
 */

import katex from "../../vendor/katex/katex.mjs";
import { make } from "./format.js";

const MAX_FORMULA = 2000; // characters
const MAX_FORMULAS = 200; // of one text
const MAX_MS = 400; // of one text
/** Display: $$ $$, \[ \]. Inline: \( \), $ $ on one line, and \boxed{ } in plain text. */
const FORMULA = /\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\]|\\\(([\s\S]+?)\\\)|\$(?![\s\d]*\$)([^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)|(\\boxed\{)/g;

/** @param {string} text @param {number} open position of the opening brace */
function closing(text, open) {
  let depth = 0;
  for (let index = open; index < Math.min(text.length, open + MAX_FORMULA); index++) {
    if (text[index] === "\\") index++;
    else if (text[index] === "{") depth++;
    else if (text[index] === "}" && --depth === 0) return index + 1;
  }
  return -1;
}

/**
 * A text cut into plain pieces and formulas.
 * @param {string} text
 * @returns {{text: string, formula?: string, isDisplay?: boolean}[]}
 */
export function pieces(text) {
  const parts = [];
  let end = 0;
  FORMULA.lastIndex = 0;
  for (let match = FORMULA.exec(text); match; match = FORMULA.exec(text)) {
    let stop = FORMULA.lastIndex;
    let formula = match[1] ?? match[2] ?? match[3] ?? match[4] ?? "";
    if (match[5]) {
      stop = closing(text, match.index + match[5].length - 1);
      if (stop < 0) continue;
      formula = text.slice(match.index, stop);
    }
    if (formula.length > MAX_FORMULA) continue;
    if (match.index > end) parts.push({ text: text.slice(end, match.index) });
    parts.push({ text: text.slice(match.index, stop), formula, isDisplay: (match[1] ?? match[2]) !== undefined });
    end = FORMULA.lastIndex = stop;
  }
  if (end < text.length) parts.push({ text: text.slice(end) });
  return parts;
}

/**
 * An element that shows a text with its formulas drawn.
 * @param {string} text
 */
export function drawn(text) {
  const whole = make("div", "maths");
  const until = performance.now() + MAX_MS;
  let count = 0;
  for (const piece of pieces(text)) {
    if (piece.formula === undefined || ++count > MAX_FORMULAS || performance.now() > until) {
      whole.append(piece.text);
      continue;
    }
    const place = make("span", piece.isDisplay ? "formula-display" : "formula");
    try {
      katex.render(piece.formula, place, {
        displayMode: piece.isDisplay ?? false,
        throwOnError: false,
        trust: false,
        strict: true,
        maxExpand: 200,
        maxSize: 10,
        errorColor: "currentColor",
      });
    } catch {
      place.textContent = piece.text; // whatever KaTeX does not call a mistake of the formula
    }
    whole.append(place);
  }
  return whole;
}
