/** Adding a benchmark: sends its forms with a progress bar for the upload, then for the reading on the server. */

import { count, must, size } from "../lib/format.js";

const POLL_MS = 700;
const progressUrl = must("[data-progress]").dataset.progress ?? "";

/**
 * The progress bar, the status text and the error box of a form.
 * @param {HTMLFormElement} form
 */
function parts(form) {
  const home = form.dataset.sent ? must(form.dataset.sent) : form;
  return {
    box: must("[data-sending]", home),
    bar: /** @type {HTMLProgressElement} */ (must("progress", home)),
    text: must("[data-sending-text]", home),
    error: must("[data-sending-error]", home),
  };
}

/**
 * @param {HTMLFormElement} form
 * @param {{field: string | null, message: string}[]} errors
 */
function showErrors(form, errors) {
  const { error } = parts(form);
  const rest = [];
  for (const one of errors) {
    const control = one.field ? form.querySelector(`[name="${CSS.escape(one.field)}"]`) : null;
    const field = control?.closest(".field");
    if (!field || !control) {
      rest.push(one.message);
      continue;
    }
    field.classList.add("field-invalid");
    const place = document.createElement("span");
    place.className = "field-error";
    place.id = `${control.id}-error`;
    place.textContent = one.message;
    control.setAttribute("aria-describedby", place.id);
    control.setAttribute("aria-invalid", "true");
    field.append(place);
  }
  error.textContent = rest.join(" ");
  error.hidden = rest.length === 0;
  const first = form.querySelector(".field-invalid .input");
  if (first instanceof HTMLElement) first.focus();
}

/** @param {HTMLFormElement} form */
function clearErrors(form) {
  for (const place of form.querySelectorAll(".field-error")) place.remove();
  for (const field of form.querySelectorAll(".field-invalid")) field.classList.remove("field-invalid");
  for (const control of form.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
  parts(form).error.hidden = true;
}

/**
 * Shows the progress of the server's reading until the answer arrives.
 * @param {HTMLFormElement} form
 * @returns {() => void} stops watching
 */
function watch(form) {
  const { bar, text } = parts(form);
  bar.removeAttribute("value");
  text.textContent = "Reading and checking…";
  const timer = setInterval(async () => {
    const answer = await fetch(progressUrl).catch(() => null);
    const progress = answer?.ok ? await answer.json() : {};
    if (!progress.phase) return;
    bar.max = 1;
    bar.value = progress.share;
    text.textContent = progress.rows ? `${progress.phase}: ${count(progress.rows)} rows, ${Math.round(progress.share * 100)} %` : `${progress.phase}…`;
  }, POLL_MS);
  return () => clearInterval(timer);
}

/** @param {HTMLFormElement} form */
function send(form) {
  const { box, bar, text } = parts(form);
  const buttons = [...document.querySelectorAll("button[type=submit]")].map((one) => /** @type {HTMLButtonElement} */ (one));
  const request = new XMLHttpRequest();
  let stop = () => {};
  clearErrors(form);
  box.hidden = false;
  for (const button of buttons) button.disabled = true;
  request.upload.addEventListener("progress", (event) => {
    if (!event.lengthComputable || event.loaded === event.total) return;
    bar.max = event.total;
    bar.value = event.loaded;
    text.textContent = `Uploading: ${size(event.loaded)} of ${size(event.total)}`;
  });
  request.upload.addEventListener("load", () => {
    stop();
    stop = watch(form);
  });
  request.addEventListener("loadend", () => {
    stop();
    const answer = /** @type {{location?: string, errors?: {field: string | null, message: string}[]}} */ (parsedAnswer(request));
    if (answer.location) {
      location.assign(answer.location);
      return;
    }
    box.hidden = true;
    for (const button of buttons) button.disabled = false;
    showErrors(form, answer.errors ?? [{ field: null, message: failureText(request) }]);
  });
  request.open("POST", form.action);
  request.setRequestHeader("Accept", "application/json");
  request.send(new FormData(form));
}

/** @param {XMLHttpRequest} request */
function parsedAnswer(request) {
  try {
    return JSON.parse(request.responseText) ?? {};
  } catch {
    return {};
  }
}

/** @param {XMLHttpRequest} request */
function failureText(request) {
  if (request.status === 413) return request.responseText;
  if (request.status === 404) return "The files are no longer here: they are kept for an hour. Upload them again.";
  return "The server did not answer. Is it still running?";
}

for (const form of document.querySelectorAll("form[data-sent]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(/** @type {HTMLFormElement} */ (form));
  });
}
// The browser may restore this page from its cache: enable the buttons again.
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("button[type=submit]:disabled")) /** @type {HTMLButtonElement} */ (button).disabled = false;
});
