/** Draws the Plotly figures that Python built: each `[data-figure]` names its `json_script` block. */

import { NUM_SOLID, readJson } from "./format.js";

/** @param {string} property */
export function colour(property) {
  const probe = document.createElement("span");
  document.body.append(probe);
  probe.style.color = `var(${property})`;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

/** Layout that depends on the colour scheme, on top of the figure's own. */
function scheme() {
  const line = colour("--line");
  const axes = Object.fromEntries(
    ["xaxis", "yaxis"].flatMap((axis) => [
      [`${axis}.gridcolor`, line],
      [`${axis}.zerolinecolor`, line],
      [`${axis}.linecolor`, colour("--line-strong")],
    ]),
  );
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "font.color": colour("--text"), ...axes };
}

/** @param {HTMLElement} element */
async function recolour(element) {
  await window.Plotly.relayout(element, scheme());
  await window.Plotly.restyle(element, { "error_y.color": colour("--text") });
  const traces = readJson(element.dataset.figure ?? "").data;
  for (const [index, trace] of traces.entries()) {
    // The trace of an agent has the colour of its position, that of a run of a comparison the run's.
    if (trace.meta?.place === undefined && trace.meta?.run === undefined) continue;
    const own = colour(trace.meta.run === undefined ? `--agent-${trace.meta.place % 8}` : `--run-${trace.meta.run % NUM_SOLID}`);
    await window.Plotly.restyle(element, { "line.color": own, "marker.color": own }, [index]);
  }
}

/** @param {HTMLElement} element */
async function draw(element) {
  const figure = readJson(element.dataset.figure ?? "");
  await window.Plotly.newPlot(element, figure.data, figure.layout, { displayModeBar: false, responsive: true });
  await recolour(element);
  element.dataset.drawn = "true";
}

/**
 * A figure as a file, on the page's background, also if it was not scrolled into view.
 * @param {HTMLElement} button
 */
async function savePicture(button) {
  const element = document.querySelector(`[data-figure="${button.dataset.png}"]`);
  if (!(element instanceof HTMLElement)) return;
  if (!element.dataset.drawn) {
    observer.unobserve(element);
    await draw(element);
  }
  await window.Plotly.relayout(element, { paper_bgcolor: colour("--surface") });
  const { width, height } = element.getBoundingClientRect();
  const size = { format: "png", filename: button.dataset.name ?? "picture", width: Math.round(width), height: Math.round(height), scale: 2 };
  await window.Plotly.downloadImage(element, size);
  await recolour(element);
}

// A figure far down the page costs nothing until it is scrolled into view.
const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting || !(entry.target instanceof HTMLElement)) continue;
      observer.unobserve(entry.target);
      draw(entry.target);
    }
  },
  { rootMargin: "400px" },
);
function watch() {
  for (const element of document.querySelectorAll("[data-figure]:not([data-drawn])")) observer.observe(element);
}

watch();
// Results that arrive while the page is open replace the former ones.
document.body.addEventListener("htmx:afterSettle", watch);

// A panel of a report that does not come says so, beside the link to its page.
for (const failure of ["htmx:responseError", "htmx:sendError"]) {
  document.body.addEventListener(failure, ({ target }) => {
    const note = target instanceof Element && target.matches("[data-later]") ? target.querySelector(".card-note") : null;
    if (note) note.textContent = "This panel could not be loaded.";
  });
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const element of document.querySelectorAll("[data-drawn]")) {
    recolour(/** @type {HTMLElement} */ (element));
  }
});

// Also for figures that are replaced later.
document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-png]") : null;
  if (button instanceof HTMLElement) savePicture(button);
});
