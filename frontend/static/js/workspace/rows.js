/** The rows of the list of runs: eyes that switch their lines on and off, their colours, groups that fold. */

import { NUM_SOLID, readJson } from "../lib/format.js";
import { listed, setAddress } from "./address.js";

/** Solid lines, then dashed ones in the same colours. */
const NUM_COLOURS = 2 * NUM_SOLID;

/** @typedef {{key: string, name: string, runs: string[], colour: number, eye: HTMLElement}} VisibleRow */
/** unmeasured: metrics that no listed run has. @type {{keys: string[], atFirst: number, most: number, scoreWord: string, unmeasured: string[]}} */
const settings = readJson("workspace-data");

/** @returns {HTMLElement[]} */
function eyes() {
  return /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".eye")]);
}

/** @param {HTMLElement} eye */
function isOn(eye) {
  return eye.getAttribute("aria-pressed") === "true";
}

/** @param {HTMLElement} eye */
function rowOf(eye) {
  return /** @type {HTMLElement} */ (eye.closest("[data-row]"));
}

/** The rows whose lines are drawn, in their order. @returns {VisibleRow[]} */
export function visibleRows() {
  return eyes().filter(isOn).map((eye) => {
    const { row = "", name = "", runs = "" } = rowOf(eye).dataset;
    return { key: row, name, runs: runs.split(" ").filter(Boolean), colour: Number(eye.dataset.runColour ?? 0), eye };
  });
}

export const isGrouped = () => document.querySelector(".run-group") !== null;
export const mostRuns = settings.most;
export const { scoreWord, unmeasured } = settings;

/** The first colour that no visible row has. */
function freeColour() {
  const used = eyes().filter(isOn).map((eye) => Number(eye.dataset.runColour));
  return Array.from({ length: NUM_COLOURS }, (_, colour) => colour).find((colour) => !used.includes(colour)) ?? used.length % NUM_COLOURS;
}

/** @param {HTMLElement} eye @param {boolean} on */
function turn(eye, on) {
  if (on) eye.dataset.runColour = String(freeColour());
  else delete eye.dataset.runColour;
  eye.setAttribute("aria-pressed", String(on));
}

/** Only what differs from the first rows being visible is in the address. */
function remember() {
  const [show, hide] = [new Set(listed("show")), new Set(listed("hide"))];
  for (const eye of eyes()) {
    const key = rowOf(eye).dataset.row ?? "";
    const isUsual = settings.keys.indexOf(key) < settings.atFirst;
    show.delete(key);
    hide.delete(key);
    if (isOn(eye) && !isUsual) show.add(key);
    if (!isOn(eye) && isUsual) hide.add(key);
  }
  setAddress({ show: [...show].join(","), hide: [...hide].join(",") });
}

/** @param {() => void} changed */
export function watchEyes(changed) {
  for (const eye of eyes()) {
    eye.addEventListener("click", (event) => {
      // With Alt this row alone, and again all of the first ones.
      if (event.altKey) {
        const isAlone = isOn(eye) && visibleRows().length === 1;
        for (const other of eyes()) turn(other, false);
        for (const other of isAlone ? eyes().slice(0, settings.atFirst) : [eye]) turn(other, true);
      } else turn(eye, !isOn(eye));
      remember();
      changed();
    });
  }
}

export function watchFolds() {
  for (const fold of document.querySelectorAll(".fold")) {
    fold.addEventListener("click", () => {
      const isOpen = fold.getAttribute("aria-expanded") === "true";
      fold.setAttribute("aria-expanded", String(!isOpen));
      const rows = document.getElementById(fold.getAttribute("aria-controls") ?? "");
      if (rows) rows.hidden = isOpen;
    });
  }
}

/** The chosen columns are one field of the address. */
export function watchColumns() {
  const form = document.querySelector("#columns-form");
  if (!(form instanceof HTMLFormElement)) return;
  const field = /** @type {HTMLInputElement} */ (form.elements.namedItem("columns"));
  form.addEventListener("submit", () => {
    const boxes = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll("input[type=checkbox]")]);
    const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
    const former = field.value.split(",").filter((name) => chosen.includes(name)); // which keep their order
    field.value = [...former, ...chosen.filter((name) => !former.includes(name))].join(",") || "-";
  });
  form.querySelector("[data-usual]")?.addEventListener("click", () => {
    field.disabled = true;
    form.submit();
  });
}
