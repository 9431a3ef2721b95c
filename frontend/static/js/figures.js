/** Draws the Plotly figures that Python built: each `[data-figure]` names its `json_script` block. */

import { readJson } from "./format.js";

/** @param {string} property */
function colour(property) {
  const probe = document.createElement("span");
  document.body.append(probe);
  probe.style.color = `var(${property})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** @returns {object} what depends on the colour scheme and the width, over the figure's own layout */
function scheme() {
  const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line-strong") };
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "font.color": colour("--text"), "xaxis.gridcolor": axis.gridcolor, "yaxis.gridcolor": axis.gridcolor, "xaxis.zerolinecolor": axis.zerolinecolor, "yaxis.zerolinecolor": axis.zerolinecolor };
}

async function drawAll() {
  for (const element of document.querySelectorAll("[data-figure]")) {
    if (!(element instanceof HTMLElement)) continue;
    const figure = readJson(element.dataset.figure ?? "");
    await window.Plotly.newPlot(element, figure.data, figure.layout, { displayModeBar: false, responsive: true });
    await window.Plotly.relayout(element, scheme());
    element.dataset.drawn = "true";
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const element of document.querySelectorAll("[data-drawn]")) {
    window.Plotly.relayout(/** @type {HTMLElement} */ (element), scheme());
  }
});
await drawAll();
