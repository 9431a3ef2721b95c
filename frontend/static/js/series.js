/**
 * What the charts of a run show, and the store that turns events into their points.
 *
 * A point belongs to a chart, a line (an agent, or an ordered pair learner <- source) and a step. Where a resumed
 * attempt repeats a step, the highest attempt wins.
 */

/**
 * @typedef {{key: string, title: string, help: string, metric: string, kind: "agent" | "pair", range?: [number, number],
 *   points?: boolean, alarm?: boolean, zero?: boolean}} ChartSpec zero: a line at 0, always in view
 * @typedef {{title: string, note: string, pairs: boolean, charts: ChartSpec[]}} ChartGroup
 */

/** @type {[number, number]} */
const SHARE = [0, 1];

/** @type {ChartGroup[]} */
export const CHART_GROUPS = [
  {
    title: "Learning",
    note: "Solid lines are agents.",
    pairs: false,
    charts: [
      { key: "reward", title: "Reward, mean", help: "Share of right answers among this step's own rollouts.", metric: "reward/mean", kind: "agent", range: SHARE },
      { key: "capability", title: "Capability", help: "Reward averaged over the last K steps, Eq. (9).", metric: "capability", kind: "agent", range: SHARE },
      { key: "accuracy", title: "Held-out accuracy", help: "Greedy answers to held-out questions; each dot is an evaluation.", metric: "accuracy", kind: "agent", range: SHARE, points: true },
    ],
  },
  {
    title: "Sharing",
    note: "Learner ← source: the colour is the learner's, the dash is the source's.",
    pairs: true,
    charts: [
      { key: "omega", title: "Capability ratio ω", help: "Capability of the source over that of the learner, Eq. (8); above 1 the source is stronger.", metric: "omega", kind: "pair" },
      { key: "used", title: "Rollouts used", help: "Share of the source's rollouts whose gradient is not zero.", metric: "used_frac", kind: "pair", range: SHARE },
      { key: "alignment", title: "Gradient alignment", help: "Cosine between the gradients of the source's rollouts and of the learner's own. Theorem 4.3 says positive; below the line at 0 the source pulls the learner away from what its own rollouts teach.", metric: "gradient_alignment", kind: "pair", points: true, zero: true },
      { key: "lower-positive", title: "Clipped below, A > 0", help: "Share of the encouraging rollouts (positive advantage) below the band: under the paper's clip they teach nothing.", metric: "clip_lower_frac/positive", kind: "pair", range: SHARE, alarm: true },
      { key: "lower-negative", title: "Clipped below, A < 0", help: "Share of the discouraging rollouts (negative advantage) below the band.", metric: "clip_lower_frac/negative", kind: "pair", range: SHARE },
      { key: "upper-positive", title: "Clipped above, A > 0", help: "Share of the encouraging rollouts above the band (s > 1).", metric: "clip_upper_frac/positive", kind: "pair", range: SHARE },
      { key: "upper-negative", title: "Clipped above, A < 0", help: "Share of the discouraging rollouts above the band (s > 1).", metric: "clip_upper_frac/negative", kind: "pair", range: SHARE },
      { key: "lower", title: "Clipped below, all", help: "Both signs together: this one number hides which rollouts were lost.", metric: "clip_lower_frac", kind: "pair", range: SHARE },
      { key: "upper", title: "Clipped above, all", help: "Both signs together.", metric: "clip_upper_frac", kind: "pair", range: SHARE },
    ],
  },
  {
    title: "Optimisation",
    note: "Solid lines are agents.",
    pairs: false,
    charts: [
      { key: "kl", title: "KL to the starting model, nats", help: "k3 estimate over own rollouts.", metric: "kl", kind: "agent" },
      { key: "length", title: "Completion length, tokens", help: "Mean over own rollouts.", metric: "completions/mean_length", kind: "agent" },
      { key: "grad-norm", title: "Gradient norm", help: "Before clipping to max_grad_norm.", metric: "grad_norm", kind: "agent" },
      { key: "entropy", title: "Entropy, nats per token", help: "Of the policy on its own rollouts.", metric: "entropy", kind: "agent" },
    ],
  },
];

/** @typedef {{attempt: number, seq: number, value: number | null}} Point */

/**
 * A metric's number: a plain value, or the quotient of a (sum, count) ratio.
 * @param {any} payload of a metrics event
 * @param {string} metric
 * @returns {number | null | undefined} undefined where the event does not carry it
 */
export function metricValue(payload, metric) {
  const ratio = payload.ratios?.[metric];
  if (ratio) return ratio[0] !== null && ratio[1] > 0 ? ratio[0] / ratio[1] : null;
  return payload.values?.[metric];
}

export class SeriesStore {
  constructor() {
    /** chart key -> line key -> step -> point @type {Map<string, Map<string, Map<number, Point>>>} */
    this.charts = new Map();
    this.points = 0;
    this.firstStep = 0;
    this.lastStep = 0;
    const specs = CHART_GROUPS.flatMap((group) => group.charts);
    this.agentSpecs = specs.filter((spec) => spec.kind === "agent" && spec.metric !== "accuracy");
    this.pairSpecs = specs.filter((spec) => spec.kind === "pair");
  }

  /**
   * @param {import("./socket.js").RunEvent} event
   * @returns {boolean} true where a chart changed
   */
  add(event) {
    const step = event.step;
    if (step === null || step === undefined) return false;
    if (event.type === "evaluation") {
      return event.payload.metric === "accuracy" && this.#put("accuracy", event.agent, step, event, event.payload.value);
    }
    if (event.type !== "metrics") return false;
    let changed = false;
    const line = event.source ? `${event.agent}\n${event.source}` : event.agent;
    for (const spec of event.source ? this.pairSpecs : this.agentSpecs) {
      const value = metricValue(event.payload, spec.metric);
      if (value !== undefined) changed = this.#put(spec.key, line, step, event, value) || changed;
    }
    return changed;
  }

  /**
   * @param {string} chart
   * @param {string} line
   * @param {number} step
   * @param {{attempt: number, seq: number}} event
   * @param {number | null} value
   */
  #put(chart, line, step, event, value) {
    let lines = this.charts.get(chart);
    if (!lines) this.charts.set(chart, (lines = new Map()));
    let points = lines.get(line);
    if (!points) lines.set(line, (points = new Map()));
    this.lastStep = Math.max(this.lastStep, step);
    const old = points.get(step);
    if (old && (old.attempt > event.attempt || (old.attempt === event.attempt && old.seq >= event.seq))) return false;
    if (!old) this.points += 1;
    points.set(step, { attempt: event.attempt, seq: event.seq, value });
    return true;
  }

  /**
   * The chart's data in uPlot's form: steps, then one array of values for each line.
   * @param {string} chart
   * @param {string[]} lines
   * @returns {(number | null)[][]}
   */
  table(chart, lines) {
    const stored = this.charts.get(chart);
    const all = new Set(lines.flatMap((line) => [...(stored?.get(line)?.keys() ?? [])]));
    const steps = [...all].sort((a, b) => a - b);
    return [steps, ...lines.map((line) => steps.map((step) => stored?.get(line)?.get(step)?.value ?? null))];
  }

  /**
   * The last `n` values of a line, oldest first.
   * @param {string} chart
   * @param {string} line
   * @param {number} n
   * @returns {{step: number, value: number}[]}
   */
  last(chart, line, n) {
    const [steps, values] = this.table(chart, [line]);
    return steps
      .map((step, index) => ({ step: /** @type {number} */ (step), value: values[index] }))
      .filter(/** @returns {point is {step: number, value: number}} */ (point) => point.value !== null)
      .slice(-n);
  }
}
