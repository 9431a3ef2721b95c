/** Reloads the page, but never while the user is leaving for another one: that would discard its answer. */

/** After this time without leaving, the link was a download. */
const LEAVING_MS = 10_000;
let isLeaving = false;
let isWanted = false;

addEventListener("beforeunload", () => {
  isLeaving = true;
  setTimeout(() => {
    isLeaving = false;
    if (isWanted) location.reload();
  }, LEAVING_MS);
});

export function reloadPage() {
  isWanted = true;
  if (!isLeaving) location.reload();
}
