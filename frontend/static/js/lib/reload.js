/** Fetches the page anew, but never while the user is on the way to another one: that would throw its answer away. */

/** After so long the user has not left: the link was a download. */
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
