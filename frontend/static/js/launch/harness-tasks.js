/** "Find a task" of the form for lm-evaluation-harness: names that contain what is typed, each a button that adds it to the list. */

import { count, make, must } from "../lib/format.js";

/** @typedef {Api.HarnessTasksAnswer} HarnessTasksAnswer */

const PAUSE_MS = 200;
const MOST_OFFERED = 50;
const search = /** @type {HTMLInputElement} */ (must("#task-search"));
const tasks = /** @type {HTMLTextAreaElement} */ (must("#tasks"));
const names = must("#task-names");
const status = must("#task-found");
let timer = 0;

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
  const buttons = items.map((name) => {
    const button = make("button", "button button-small mono", name);
    button.type = "button";
    button.addEventListener("click", () => add(name));
    return button;
  });
  names.replaceChildren(...buttons);
}

/** @param {string} name is added to the list of tasks, once */
function add(name) {
  const listed = tasks.value.split(/[\s,;]+/).filter(Boolean);
  if (!listed.includes(name)) tasks.value = [...listed, name].join(" ");
  search.value = "";
  show([]);
  status.textContent = `${name} is in the list.`;
  search.focus();
}

search.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => void offer(), PAUSE_MS);
});
search.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault(); // it would queue the evaluation
  const name = search.value.trim();
  if ([...names.children].some((button) => button.textContent === name)) add(name);
});
must("#task-finder").hidden = false;
