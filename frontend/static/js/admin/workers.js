/**
 * The Workers page: fetches the page every few seconds and replaces each live part that has changed. A part is left
 * alone while the user fills in one of its forms or drags one of its runs.
 */

const EVERY_MS = 5000;
/** Counts the changes that this page makes; a page that was fetched before a change is outdated. */
let changes = 0;

/**
 * The content of a part: its text, with times as dates because relative times change, and the values in attributes.
 * @param {Element} part
 */
function contentOf(part) {
  const copy = /** @type {Element} */ (part.cloneNode(true));
  for (const time of copy.querySelectorAll("time[datetime]")) time.textContent = time.getAttribute("datetime");
  const fields = [...copy.querySelectorAll("[data-queued], [name='priority']")];
  return [copy.textContent, ...fields.map((one) => one.getAttribute("data-queued") ?? one.getAttribute("value"))].join();
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
      if (part && contentOf(part) !== contentOf(shown) && !isInUse(shown)) exchange(shown, part);
    }
  } catch {
    // The next refresh tries again, and an old heartbeat shows that this page is not current.
  }
}

/**
 * Sends a form of the queue with a further field, and shows the queue in the answer.
 * @param {HTMLFormElement} form
 * @param {string} name
 * @param {string} value
 * @returns {Promise<string>} why it was refused; empty if it was not
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
