/** Drawings that are larger than their box can be reached and scrolled by keyboard. */

/** @param {HTMLElement} drawing */
export function letFocus(drawing) {
  if (drawing.scrollWidth <= drawing.clientWidth + 1 && drawing.scrollHeight <= drawing.clientHeight + 1) return;
  drawing.tabIndex = 0;
  drawing.setAttribute("role", "group");
  drawing.setAttribute("aria-label", "Drawn mathematics (scrollable)");
}
