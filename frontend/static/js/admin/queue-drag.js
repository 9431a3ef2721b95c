/**
 * The queue of the Workers page: drag a run by its handle, with a mouse, a pen or a finger. The buttons remain for the
 * keyboard. Places count among the rows that the run can be moved among; the server decides.
 */

import { must } from "../lib/format.js";
import { change } from "./workers.js";

const EDGE_PX = 64;
const SCROLLED_PX = 8;
/** A press that moves less is not a drag. */
const MOVED_PX = 4;

/** @typedef {{row: HTMLElement, pointer: number, y: number, before: HTMLElement | null, isMoving: boolean, isDropped: boolean}} Drag */

/** `before`: the row below the place to drop at, null at the end. @type {Drag | null} */
let drag = null;
const status = must("#queue-said");

function rows() {
  return [...document.querySelectorAll("#queue tr[data-among]")].filter((row) => row instanceof HTMLElement);
}

/**
 * The place, from 1, of a row before another one; null: at the end.
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

/** Draws the line at the pointer. @param {Drag} of */
function aim(of) {
  const all = rows();
  of.before = all.find((row) => of.y < row.getBoundingClientRect().top + row.offsetHeight / 2) ?? null;
  clearLine();
  if (!isMove(of)) return;
  if (of.before) of.before.classList.add("drop-before");
  else all.at(-1)?.classList.add("drop-after");
}

/** Scrolls at the edges of the window, since a queue may be longer than it. */
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
function report(text, isRefused) {
  status.hidden = !text;
  status.classList.toggle("alert-error", isRefused);
  status.textContent = text;
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
  report(refused || `${name} was moved to place ${place}.`, Boolean(refused));
  end();
}

document.addEventListener("pointerdown", (event) => {
  const handle = event.target instanceof Element ? event.target.closest(".queue-handle") : null;
  const row = handle?.closest("tr");
  if (!handle || !row || drag || event.button !== 0 || !event.isPrimary) return;
  event.preventDefault(); // do not select text
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
document.body.dataset.drags = ""; // shows the handles, which do nothing without this script
