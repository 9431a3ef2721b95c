/** The workspace of runs: the list on the left, and on the right the panels that draw its visible rows over each other. */

import "../lib/at-once.js";
import { must } from "../lib/format.js";
import { keepAddresses } from "./address.js";
import { RunPanels } from "./run-panels.js";
import { watchColumns, watchEyes, watchFolds } from "./rows.js";

const RELOAD_MS = 5000;
const workspace = must("#workspace");
const root = document.querySelector("#panels");
/** For browser tests: what is drawn. */
export const panels = root instanceof HTMLElement ? new RunPanels(root) : null;
let timer = 0;

keepAddresses();
watchFolds();
watchColumns();
watchEyes(() => {
  panels?.rowsChanged();
  if (workspace.dataset.tab === "compare" && workspace.dataset.layout !== "table") location.reload(); // the server compares
});
// Steps of runs that train come in bursts: lines are read again at most every few seconds.
document.body.addEventListener("run-changed", () => {
  if (!panels || timer) return;
  timer = setTimeout(() => {
    timer = 0;
    panels.load();
  }, RELOAD_MS);
});
