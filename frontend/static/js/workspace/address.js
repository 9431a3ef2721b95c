/** The address of the workspace, which is the whole of it: links and forms keep what the reader has changed since the page came. */

/** What the script changes without loading the page. */
const LIVE = ["show", "hide", "panels", "agents", "x", "smooth", "log", "first", "last"];

const atFirst = new URLSearchParams(location.search);

/** @param {Record<string, string>} values an empty one is left out */
export function setAddress(values) {
  const parameters = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value) parameters.set(name, value);
    else parameters.delete(name);
  }
  const query = parameters.toString();
  history.replaceState(history.state, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
}

/** The keys of an address' list. @param {string} name */
export function listed(name) {
  return (new URLSearchParams(location.search).get(name) ?? "").split(",").filter(Boolean);
}

/** A link changes what its address says; the rest is as the page is now. @param {HTMLAnchorElement} link */
function bringUpToDate(link) {
  const target = new URL(link.href);
  const now = new URLSearchParams(location.search);
  for (const name of LIVE) {
    if (target.searchParams.get(name) !== atFirst.get(name)) continue;
    const value = now.get(name);
    if (value) target.searchParams.set(name, value);
    else target.searchParams.delete(name);
  }
  link.href = target.href;
}

/** @param {string} name */
function hiddenField(name) {
  const field = document.createElement("input");
  field.type = "hidden";
  field.name = name;
  return field;
}

/** @param {HTMLFormElement} form */
function fill(form) {
  const now = new URLSearchParams(location.search);
  const dropped = (form.dataset.drops ?? "").split(" ");
  for (const name of LIVE.filter((one) => !dropped.includes(one))) {
    const value = now.get(name) ?? "";
    const field = form.elements.namedItem(name) ?? (value ? form.appendChild(hiddenField(name)) : null);
    if (field instanceof HTMLInputElement) {
      field.value = value;
      field.disabled = !value;
    }
  }
}

export function keepAddresses() {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link instanceof HTMLAnchorElement && link.getAttribute("href")?.startsWith("?") && link.dataset.whole === undefined) bringUpToDate(link);
  }, true);
  for (const form of document.querySelectorAll("form[data-keeps]")) form.addEventListener("submit", () => fill(/** @type {HTMLFormElement} */ (form)));
  const saved = document.querySelector("#view-save");
  saved?.addEventListener("submit", () => {
    const parameters = new URLSearchParams(location.search);
    parameters.delete("page");
    const field = saved.querySelector("[name=query]");
    if (field instanceof HTMLInputElement) field.value = parameters.toString();
  });
}
