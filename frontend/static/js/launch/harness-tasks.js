/** "Find a task" of the form for lm-evaluation-harness: names that contain what is typed; the chosen one is added to the list. */

import { count, must } from "../lib/format.js";

/** @typedef {Api.HarnessTasksAnswer} HarnessTasksAnswer */

const PAUSE_MS = 200;
const MOST_OFFERED = 50;
const search = /** @type {HTMLInputElement} */ (must("#task-search"));
const tasks = /** @type {HTMLTextAreaElement} */ (must("#tasks"));
const names = must("#task-names");
const status = must("#task-found");
let timer = 0;
/** @type {string[]} */
let offered = [];

async function offer() {
  const part = search.value.trim();
  if (!part) return show([]);
  const query = new URLSearchParams({ q: part, limit: String(MOST_OFFERED) });
  const answer = await fetch(`${search.dataset.url}?${query}`).catch(() => null);
  if (part !== search.value.trim()) return; // typed meanwhile
  if (!answer?.ok) {
    status.textContent = "The server does not answer: enter names in the list above.";
    return;
  }
  const found = /** @type {HarnessTasksAnswer} */ (await answer.json());
  if (part !== search.value.trim()) return;
  show(found.items);
  status.textContent = `${count(found.count)} ${found.count === 1 ? "name contains" : "names contain"} this.`;
}

/** @param {string[]} items */
function show(items) {
  offered = items;
  names.replaceChildren(...items.map((item) => new Option("", item)));
}

/** Adds the name in the field to the list if it is an offered one. */
function add() {
  const name = search.value.trim();
  if (!offered.includes(name)) return;
  const listed = tasks.value.split(/[\s,;]+/).filter(Boolean);
  if (!listed.includes(name)) tasks.value = [...listed, name].join(" ");
  search.value = "";
  show([]);
  status.textContent = `${name} is in the list.`;
}

search.addEventListener("input", (event) => {
  clearTimeout(timer);
  // A choice from the list is no typed text: no input type in Chromium, a replacement in Firefox.
  const isTyped = event instanceof InputEvent && event.inputType && event.inputType !== "insertReplacementText";
  if (!isTyped && offered.includes(search.value.trim())) return add();
  timer = setTimeout(() => void offer(), PAUSE_MS);
});
search.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault(); // it would queue the evaluation
  add();
});
search.addEventListener("change", add); // a whole name was typed
must("#task-finder").hidden = false;
