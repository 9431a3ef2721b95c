/** The side card of the new-run form: the server's estimate of the cost, or the errors of the form. */

import { count, duration, make, must, size } from "../lib/format.js";
import { fixButtons } from "./fixes.js";

/**
 * @typedef {Api.Cost} Cost
 * @typedef {{code: string, message: string, field: string | null, fixes?: import("./fixes.js").Fix[]}} FieldError
 */

const PAUSE_MS = 400;
const MOST_SHOWN = 4;
/** Code of an error that the side card shows as a warning. */
const WARNED = "context_too_short";
let timer = 0;
let request = new AbortController();

/**
 * Requests an estimate after a pause in typing; the answer to an older request is dropped.
 * @param {HTMLFormElement} form
 * @param {boolean} isReady with a group and a benchmark
 */
export function requestCost(form, isReady) {
  clearTimeout(timer);
  request.abort();
  if (!isReady) {
    showCost(null);
    return;
  }
  timer = setTimeout(() => void fetchCost(form), PAUSE_MS);
}

/** @param {HTMLFormElement} form */
async function fetchCost(form) {
  request = new AbortController();
  try {
    const answer = await fetch(must("#cost").dataset.url ?? "", { method: "POST", body: new FormData(form), signal: request.signal });
    const body = answer.headers.get("Content-Type")?.includes("json") ? await answer.json() : {};
    showCost(body.cost ?? null);
    const errors = /** @type {FieldError[]} */ (body.errors ?? []);
    showErrors(errors.filter((error) => error.code !== WARNED));
    showFailing(errors.length, Boolean(body.cost));
  } catch {
    // Aborted, or no connection: the form can still be sent, and is checked then.
  }
}

/** @param {Cost | null} cost */
function showCost(cost) {
  show("runs", cost ? count(cost.runs) : "–");
  show("rollouts", cost ? `${cost.extra_rollouts ? "at most " : ""}${count(cost.rollouts)}` : "–");
  show("max-tokens", cost ? `at most ${count(cost.max_tokens)}` : "–");
  show("device-time", cost && cost.device_seconds !== null ? `${cost.extra_rollouts ? "at most about" : "about"} ${duration(cost.device_seconds)}` : "–");
  show("memory", cost?.memory || "–");
  show("disk", cost && cost.disk_bytes !== null ? `about ${size(cost.disk_bytes)}` : "–");
  show("basis", cost?.basis ?? "");
  if (cost) showErrors([]);
  showFailing(0, false);
}

/** Beside the cost, that checks fail. @param {number} number of them @param {boolean} isPart whether a part of the cost is known */
function showFailing(number, isPart) {
  const line = must("#cost-failing");
  line.hidden = number === 0;
  line.textContent = isPart ? `Estimate ignores ${number === 1 ? "1 problem" : `${count(number)} problems`}.` : "No estimate until the problems below are solved.";
}

/** @param {FieldError[]} errors each leads to its field */
export function showErrors(errors) {
  const box = must("#not-yet");
  box.hidden = errors.length === 0;
  const lines = errors.slice(0, MOST_SHOWN).flatMap(({ message, field, fixes }) => {
    const id = `id-${(field ?? "").replaceAll(".", "-")}`;
    const line = make("p", "small");
    if (document.getElementById(id)) {
      const label = document.querySelector(`label[for="${id}"]`)?.firstChild?.textContent?.trim();
      const link = make("a", "", label || (field ?? ""));
      link.title = field ?? "";
      link.href = `#${id}`;
      line.append(link, ": ");
    } else if (field) line.append(`${field}: `);
    line.append(message);
    return fixes ? [line, fixButtons(fixes)] : [line];
  });
  if (errors.length > MOST_SHOWN) lines.push(make("p", "small", `and ${errors.length - MOST_SHOWN} more`));
  box.replaceChildren(make("strong", "small", "Not ready yet"), ...lines);
}

/**
 * @param {string} name
 * @param {string} text
 */
function show(name, text) {
  const element = must(`[data-show="${name}"]`);
  if (element.textContent !== text) element.textContent = text;
}
