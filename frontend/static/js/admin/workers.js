/**
 * The Workers page: its live parts are fetched anew every few seconds and exchanged one by one. Forms that somebody is
 * at are left alone, and so is a part in which a run is dragged.
 */

const EVERY_MS = 5000;
/** Goes up with each change that this page makes: what was fetched before it is old. */
let changes = 0;

/**
 * What a part says: its text, times as dates since their words change by themselves, and what stands in attributes.
 * @param {Element} part
 */
function meaning(part) {
  const copy = /** @type {Element} */ (part.cloneNode(true));
  for (const time of copy.querySelectorAll("time[datetime]")) time.textContent = time.getAttribute("datetime");
  const told = [...copy.querySelectorAll("[data-queued], [name='priority']")];
  return [copy.textContent, ...told.map((one) => one.getAttribute("data-queued") ?? one.getAttribute("value"))].join();
}

/** @param {Element} part */
function isInUse(part) {
  if (part.contains(document.activeElement) || part.querySelector("[data-dragged]")) return true;
  return [...part.querySelectorAll("input")].some((field) => field.value !== field.defaultValue);
}

/**
 * @param {Element} shown
 * @param {Element} part
 */
function exchange(shown, part) {
  const scrolled = [...shown.querySelectorAll(".table-scroll")].map((table) => table.scrollLeft);
  const added = document.adoptNode(part);
  shown.replaceWith(added);
  for (const [place, table] of [...added.querySelectorAll(".table-scroll")].entries()) table.scrollLeft = scrolled[place] ?? 0;
  document.body.dispatchEvent(new Event("parts-exchanged"));
}

/** @param {Document} fresh @returns {Map<string | null, Element>} */
function partsOf(fresh) {
  return new Map([...fresh.querySelectorAll("[data-live]")].map((part) => [part.getAttribute("data-live"), part]));
}

/** @param {Response} answer */
async function parsed(answer) {
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

async function refresh() {
  if (document.hidden) return;
  const before = changes;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return;
    const parts = partsOf(await parsed(answer));
    if (before !== changes) return;
    for (const shown of document.querySelectorAll("[data-live]")) {
      const part = parts.get(shown.getAttribute("data-live"));
      if (part && meaning(part) !== meaning(shown) && !isInUse(shown)) exchange(shown, part);
    }
  } catch {
    // The next look tries again; a heartbeat that grows old says it, too.
  }
}

/**
 * Sends a form of the queue with a further field, and shows the queue that the server answers with.
 * @param {HTMLFormElement} form
 * @param {string} name
 * @param {string} value
 * @returns {Promise<string>} why it was refused; empty where it was not
 */
export async function change(form, name, value) {
  changes += 1;
  const body = new FormData(form);
  body.set(name, value);
  const answer = await fetch(form.action, { method: "POST", body }).catch(() => null);
  changes += 1;
  if (!answer) return "The server did not answer: the queue may be as it was.";
  const fresh = answer.ok ? await parsed(answer) : null;
  const shown = document.querySelector('[data-live="queue"]');
  const part = fresh && partsOf(fresh).get("queue");
  if (!fresh || !shown || !part) return "The server refused it: load the page again.";
  exchange(shown, part);
  return fresh.querySelector("[data-banner]")?.textContent?.trim() ?? "";
}

setInterval(refresh, EVERY_MS);
document.addEventListener("visibilitychange", refresh);
