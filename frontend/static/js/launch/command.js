/** "Copy command" of the new-run form: the server writes the command line that launches what the form describes. */

import { must } from "../lib/format.js";
import { showErrors } from "./cost.js";

/** @param {HTMLFormElement} form */
export function offerCommand(form) {
  const button = must("#copy-command");
  button.hidden = false; // without this script there is "Download YAML"
  button.addEventListener("click", () => void copy(form, button.dataset.url ?? ""));
  // The copied command is out of date.
  form.addEventListener("input", () => (must("#command").hidden = true));
}

/**
 * @param {HTMLFormElement} form
 * @param {string} url
 */
async function copy(form, url) {
  const area = /** @type {HTMLTextAreaElement} */ (must("#command-text"));
  const box = must("#command");
  box.hidden = true;
  try {
    const answer = await fetch(url, { method: "POST", body: new FormData(form) });
    const body = answer.headers.get("Content-Type")?.includes("json") ? await answer.json() : {};
    showErrors(body.errors ?? []);
    area.value = body.command ?? "";
    box.hidden = !body.command;
    if (body.command) say(await put(area));
    else if (!body.errors?.length) fail(box, area, `The server answered ${answer.status}: nothing was copied.`);
  } catch {
    fail(box, area, "The server does not answer: nothing was copied.");
  }
}

/**
 * @param {HTMLElement} box
 * @param {HTMLTextAreaElement} area
 * @param {string} why
 */
function fail(box, area, why) {
  area.value = "";
  box.hidden = false;
  say(why);
}

/**
 * Copies to the clipboard if the browser allows it (https, or this machine); elsewhere the text is selected.
 * @param {HTMLTextAreaElement} area
 */
async function put(area) {
  try {
    await navigator.clipboard.writeText(area.value);
    return "Copied.";
  } catch {
    area.focus();
    area.select();
    return "Selected: copy it with Ctrl+C (Cmd+C).";
  }
}

/** @param {string} text */
function say(text) {
  must("#command-said").textContent = text;
}
