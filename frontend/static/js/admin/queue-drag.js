/**
 * The queue of the Workers page: a run is dragged by its handle, with a mouse, a pen or a finger. Its buttons remain, for
 * the keyboard. Places count among the rows that the run may change places with; the server decides.
 */

import { must } from "../lib/format.js";
import { change } from "./workers.js";

const EDGE_PX = 64;
const SCROLLED_PX = 8;
/** A press that moves less is none. */
const MOVED_PX = 4;

/** @typedef {{row: HTMLElement, pointer: number, y: number, before: HTMLElement | null, isMoving: boolean, isDropped: boolean}} Drag */

/** `before`: the row that the dragged one would stand before, null at the end. @type {Drag | null} */
let drag = null;
const said = must("#queue-said");

function rows() {
  return [...document.querySelectorAll("#queue tr[data-among]")].filter((row) => row instanceof HTMLElement);
}

/**
 * The place, from 1, that a row has where it stands before another one; null: at the end.
 * @param {HTMLElement} row
 * @param {HTMLElement | null} before
 */
function placeBefore(row, before) {
  const all = rows();
  const end = before ? all.indexOf(before) : all.length;
  return all.slice(0, end).filter((one) => one !== row && one.dataset.among === row.dataset.among).length + 1;
}

/** @param {Drag} of */
function isMove({ row, before }) {
  return placeBefore(row, before) !== placeBefore(row, row);
}

function clearLine() {
  for (const row of document.querySelectorAll(".drop-before, .drop-after")) row.classList.remove("drop-before", "drop-after");
}

/** Where the pointer is: the line is drawn there. @param {Drag} of */
function aim(of) {
  const all = rows();
  of.before = all.find((row) => of.y < row.getBoundingClientRect().top + row.offsetHeight / 2) ?? null;
  clearLine();
  if (!isMove(of)) return;
  if (of.before) of.before.classList.add("drop-before");
  else all.at(-1)?.classList.add("drop-after");
}

/** At the edges of the window the page goes on: a queue may be longer than it. */
function scroll() {
  if (!drag || drag.isDropped) return;
  const way = drag.y < EDGE_PX ? -1 : drag.y > innerHeight - EDGE_PX ? 1 : 0;
  if (way) {
    scrollBy(0, way * SCROLLED_PX);
    aim(drag);
  }
  requestAnimationFrame(scroll);
}

function end() {
  clearLine();
  drag?.row.removeAttribute("data-dragged");
  drag = null;
}

/** @param {string} text @param {boolean} isRefused */
function say(text, isRefused) {
  said.hidden = !text;
  said.classList.toggle("alert-error", isRefused);
  said.textContent = text;
}

/** @param {Drag} dropped */
async function drop(dropped) {
  const { row, before } = dropped;
  const form = row.querySelector("button[name='move']")?.closest("form");
  if (!form || !isMove(dropped)) return end();
  dropped.isDropped = true;
  const refused = await change(form, "place", String(placeBefore(row, before)));
  const name = row.querySelector("th")?.textContent?.trim();
  const shown = rows().find((one) => one.dataset.queued === row.dataset.queued);
  const place = shown?.querySelector("td")?.textContent?.trim();
  say(refused || `${name} was moved to place ${place}.`, Boolean(refused));
  end();
}

document.addEventListener("pointerdown", (event) => {
  const handle = event.target instanceof Element ? event.target.closest(".queue-handle") : null;
  const row = handle?.closest("tr");
  if (!handle || !row || drag || event.button !== 0 || !event.isPrimary) return;
  event.preventDefault(); // no text is chosen on the way
  handle.setPointerCapture(event.pointerId);
  drag = { row, pointer: event.pointerId, y: event.clientY, before: row, isMoving: false, isDropped: false };
  row.setAttribute("data-dragged", "");
});
document.addEventListener("pointermove", (event) => {
  if (!drag || drag.isDropped || event.pointerId !== drag.pointer) return;
  if (!drag.isMoving) {
    if (Math.abs(event.clientY - drag.y) < MOVED_PX) return;
    drag.isMoving = true;
    requestAnimationFrame(scroll);
  }
  drag.y = event.clientY;
  aim(drag);
});
document.addEventListener("pointerup", (event) => {
  if (drag && !drag.isDropped && event.pointerId === drag.pointer) drop(drag);
});
document.addEventListener("pointercancel", (event) => {
  if (drag && !drag.isDropped && event.pointerId === drag.pointer) end();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && drag && !drag.isDropped) end();
});
document.body.dataset.drags = ""; // the handles are shown: without this file they would do nothing
