/**
 * The layout of the panels below the large pictures: order, size, pinned, hidden and added ones. Its text is in the
 * address and is saved for a project; overview/panels.py describes it.
 */

/**
 * @typedef {import("./series.js").ChartSpec} ChartSpec
 * @typedef {import("./series.js").PanelSize} PanelSize
 * @typedef {{spec: ChartSpec, size: PanelSize, isPinned: boolean, isHidden: boolean}} Panel
 */

const TOKEN = /^(-?)(\*?)(\+?)([\w/.@%-]+)(~?)(?::([sml]))?$/;

/** The chart of any recorded metric. @param {string} metric @param {boolean} isPair @returns {ChartSpec} */
export function specOf(metric, isPair) {
  return { key: `+${metric}${isPair ? "~" : ""}`, title: metric, help: "As recorded; docs/metrics.md defines it.", metric, kind: isPair ? "pair" : "agent" };
}

/** @param {ChartSpec} spec */
export function isAdded(spec) {
  return spec.key.startsWith("+");
}

/** @param {ChartSpec} spec @returns {Panel} */
function panelOf(spec) {
  return { spec, size: spec.size ?? "s", isPinned: false, isHidden: false };
}

export class PanelLayout {
  /**
   * @param {ChartSpec[]} specs of the charts that every run has
   * @param {string} text
   */
  constructor(specs, text) {
    this.specs = specs;
    /** @type {Panel[]} */
    this.panels = [];
    this.read(text);
  }

  /** Unreadable panels, and those that this run does not have, are passed over. @param {string} text */
  read(text) {
    this.panels = [];
    for (const token of text.split(",")) {
      const [, hidden, pinned, plus, name, tilde, size] = TOKEN.exec(token) ?? [];
      const spec = plus ? specOf(name, Boolean(tilde)) : this.specs.find((one) => one.key === name);
      if (!spec || this.panels.some((panel) => panel.spec.key === spec.key)) continue;
      this.panels.push({ ...panelOf(spec), isPinned: Boolean(pinned), isHidden: Boolean(hidden), ...(size ? { size: /** @type {PanelSize} */ (size) } : {}) });
    }
    for (const spec of this.specs) if (!this.find(spec.key)) this.panels.push(panelOf(spec));
  }

  /** The shortest text that is read as this layout. */
  get text() {
    const tokens = this.panels.map(({ spec, size, isPinned, isHidden }) => `${isHidden ? "-" : ""}${isPinned ? "*" : ""}${spec.key}${size === (spec.size ?? "s") ? "" : `:${size}`}`);
    const whole = tokens.join(",");
    let length = tokens.length;
    const isSame = (/** @type {number} */ count) => {
      const rest = this.specs.filter((spec) => !this.panels.slice(0, count).some((panel) => panel.spec.key === spec.key));
      return [...tokens.slice(0, count), ...rest.map((spec) => spec.key)].join(",") === whole;
    };
    while (length && isSame(length - 1)) length -= 1;
    return tokens.slice(0, length).join(",");
  }

  /** @param {string} key */
  find(key) {
    return this.panels.find((panel) => panel.spec.key === key);
  }

  /** @param {string} metric @param {boolean} isPair */
  add(metric, isPair) {
    const spec = this.specs.find((one) => one.metric === metric && (one.kind === "pair") === isPair && !one.lanes) ?? specOf(metric, isPair);
    const panel = this.find(spec.key);
    if (panel) panel.isHidden = false;
    else this.panels.unshift(panelOf(spec));
    return spec;
  }

  /** Hides a chart that every run has; removes one that was added. @param {string} key */
  hide(key) {
    const panel = this.find(key);
    if (!panel) return;
    if (isAdded(panel.spec)) this.panels.splice(this.panels.indexOf(panel), 1);
    else panel.isHidden = true;
  }

  /** Puts one panel in the place of another. @param {string} key @param {string} target */
  move(key, target) {
    const [panel, other] = [this.find(key), this.find(target)];
    if (!panel || !other || panel === other) return;
    const to = this.panels.indexOf(other);
    this.panels.splice(this.panels.indexOf(panel), 1);
    this.panels.splice(to, 0, panel);
  }
}
