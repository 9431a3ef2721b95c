/** Draws the formulas of a docs page. Without this file the page shows their source. */

import { drawn } from "./maths.js";

for (const source of document.querySelectorAll(".formula-source")) {
  const formula = drawn(`$$${source.textContent ?? ""}$$`);
  formula.tabIndex = 0; // a long one is scrolled by key on a phone
  source.replaceWith(formula);
}
