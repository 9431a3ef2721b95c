/** Colours of the present scheme, and what is painted on a chart beside its lines. */

/** Looked up once. @type {Map<string, string>} */
const colours = new Map();

/**
 * The colour that a custom property has in the page's present colour scheme.
 * @param {string} property
 * @param {number} [share] of opacity, in percent
 */
export function colour(property, share = 100) {
  const name = `${property} ${share}`;
  const cached = colours.get(name);
  if (cached) return cached;
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  probe.style.color = share === 100 ? `var(${property})` : `color-mix(in srgb, var(${property}) ${share}%, transparent)`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  colours.set(name, value);
  return value;
}

/** The scheme has changed. */
export function forgetColours() {
  colours.clear();
}

/**
 * A triangle on the x axis, and a thin line above it, at each place.
 * @param {uPlot} plot
 * @param {number[]} places
 */
export function drawMarks(plot, places) {
  const { left, top, width, height } = plot.bbox;
  const size = 5 * devicePixelRatio;
  const context = plot.ctx;
  context.save();
  context.fillStyle = context.strokeStyle = colour("--amber");
  context.lineWidth = devicePixelRatio;
  for (const place of places) {
    const x = plot.valToPos(place, "x", true);
    if (x < left || x > left + width) continue;
    context.globalAlpha = 0.45;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
    context.globalAlpha = 1;
    context.beginPath();
    context.moveTo(x, top + height - 2 * size);
    context.lineTo(x - size, top + height);
    context.lineTo(x + size, top + height);
    context.fill();
  }
  context.restore();
}

/**
 * A square on the x axis at each checkpoint, a dashed line at each restart.
 * @param {uPlot} plot
 * @param {{checkpoints: number[], restarts: number[]}} places
 */
export function drawEvents(plot, { checkpoints, restarts }) {
  const { left, top, width, height } = plot.bbox;
  const size = 5 * devicePixelRatio;
  const at = (/** @type {number} */ place) => Math.round(plot.valToPos(place, "x", true));
  const inside = (/** @type {number} */ place) => at(place) >= left && at(place) <= left + width;
  plot.ctx.save();
  plot.ctx.fillStyle = plot.ctx.strokeStyle = colour("--quiet");
  plot.ctx.lineWidth = devicePixelRatio;
  for (const place of checkpoints.filter(inside)) plot.ctx.fillRect(at(place) - size / 2, top + height - size, size, size);
  plot.ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const place of restarts.filter(inside)) {
    plot.ctx.beginPath();
    plot.ctx.moveTo(at(place), top);
    plot.ctx.lineTo(at(place), top + height);
    plot.ctx.stroke();
  }
  plot.ctx.restore();
}

/**
 * From the lowest to the highest value, one bar for each column of pixels: a spike of one bucket is a whole pixel wide.
 * @param {uPlot} plot
 * @param {number[]} x
 * @param {(number | null)[]} low
 * @param {(number | null)[]} high
 * @param {string} fill
 */
export function drawBars(plot, x, low, high, fill) {
  const { ctx } = plot;
  const { left, width } = plot.bbox;
  ctx.save();
  ctx.fillStyle = fill;
  let [from, to, lowest, highest] = [-1, -1, Infinity, -Infinity];
  const paint = () => {
    if (highest < lowest || to < left || from > left + width) return;
    const top = Math.round(plot.valToPos(highest, "y", true));
    ctx.fillRect(Math.max(from, left), top, Math.min(to, left + width) - Math.max(from, left) + 1, Math.max(1, Math.round(plot.valToPos(lowest, "y", true)) - top));
  };
  for (let i = 0; i < x.length; i++) {
    const [bottom, top] = [low[i], high[i]];
    if (top === null || top === undefined) continue;
    const place = Math.round(plot.valToPos(x[i], "x", true));
    if (place > to) {
      paint();
      [from, to, lowest, highest] = [to < 0 ? place : to + 1, place, Infinity, -Infinity];
    }
    // On a log axis the lowest may have no place.
    lowest = Math.min(lowest, bottom ?? Number(plot.scales.y.min));
    highest = Math.max(highest, top);
  }
  paint();
  ctx.restore();
}

/**
 * A line of another run, under those of this one.
 * @param {uPlot} plot
 * @param {number[]} x
 * @param {number[]} y
 * @param {number[]} dash
 * @param {string} stroke
 */
export function drawGhost(plot, x, y, dash, stroke) {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.strokeStyle = stroke;
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  ctx.beginPath();
  y.forEach((value, row) => ctx.lineTo(plot.valToPos(x[row], "x", true), plot.valToPos(value, "y", true)));
  ctx.stroke();
  ctx.restore();
}

/**
 * A lane of a heat map: from each place to the next, the more colour the higher the share.
 * @param {uPlot} plot
 * @param {number[]} x
 * @param {(number | null)[]} shares 0 to 1
 * @param {[number, number]} edges of the lane on the y axis
 * @param {string} property of the colour
 */
export function drawLane(plot, x, shares, [upper, lower], property) {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  const [high, low] = [upper, lower].map((edge) => Math.round(plot.valToPos(edge, "y", true)));
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.fillStyle = colour("--sunken");
  ctx.fillRect(left, high, width, low - high);
  const rows = shares.flatMap((share, row) => (share === null ? [] : [row]));
  rows.forEach((row, place) => {
    // Each value holds up to the next; the last as long as the one before it, or for one step.
    const next = rows[place + 1];
    const at = (/** @type {number} */ value) => Math.round(plot.valToPos(value, "x", true)); // whole pixels: the cells must not overlap
    const from = at(x[row]);
    const to = next === undefined ? from + (place ? from - at(x[rows[place - 1]]) : at(x[row] + 1) - from) : at(x[next]);
    const share = Math.min(1, Math.max(0, Number(shares[row])));
    if (!share) return;
    ctx.fillStyle = colour(property, 10 + Math.round(share * 18) * 5);
    ctx.fillRect(from, high, Math.max(1, to - from), low - high);
  });
  ctx.restore();
}

/**
 * The area between two lines.
 * @param {uPlot} plot
 * @param {number[]} x
 * @param {(number | null)[]} low
 * @param {(number | null)[]} high
 * @param {string} fill
 */
export function drawBand(plot, x, low, high, fill) {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.fillStyle = fill;
  ctx.beginPath();
  const rows = x.flatMap((_, row) => (high[row] === null || high[row] === undefined ? [] : [row]));
  const floor = Number(plot.scales.y.min); // on a log axis the lower edge may have no place
  for (const row of rows) ctx.lineTo(plot.valToPos(x[row], "x", true), plot.valToPos(Number(high[row]), "y", true));
  for (const row of rows.reverse()) ctx.lineTo(plot.valToPos(x[row], "x", true), plot.valToPos(low[row] ?? floor, "y", true));
  ctx.fill();
  ctx.restore();
}

/**
 * A line at 0, under the lines of the agents.
 * @param {uPlot} plot
 */
export function drawZero(plot) {
  if (plot.scales.y.distr === 3) return; // a log axis has no 0
  const { left, width } = plot.bbox;
  const y = Math.round(plot.valToPos(0, "y", true)) + 0.5;
  plot.ctx.save();
  plot.ctx.strokeStyle = colour("--line-strong");
  plot.ctx.lineWidth = devicePixelRatio;
  plot.ctx.beginPath();
  plot.ctx.moveTo(left, y);
  plot.ctx.lineTo(left + width, y);
  plot.ctx.stroke();
  plot.ctx.restore();
}

/**
 * A range with a tenth of air around the values.
 * @param {number | null} low
 * @param {number | null} high
 * @param {boolean} [zero] 0 lies inside, whatever the values
 * @returns {[number, number]}
 */
export function padded(low, high, zero) {
  if (low === null || high === null) return zero ? [-1, 1] : [0, 1];
  if (zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  const air = (high - low || Math.abs(high) || 1) / 10;
  return [low >= 0 && !zero ? Math.max(0, low - air) : low - air, high + air];
}
