/**
 * What the charts of a run show, and the store of their lines: the server's buckets, and after them the live points.
 *
 * A point belongs to a chart, a line (an agent, or an ordered pair learner <- source) and a step. Where a resumed
 * attempt repeats a step, the highest attempt wins: the server decides that, so such an event only makes the store ask
 * for a new answer.
 */

/**
 * @typedef {"s" | "m" | "l"} PanelSize
 * @typedef {"positive" | "negative" | "all"} Sign of the advantage
 * @typedef {{name: string, metrics: Record<Sign, string>}} Lane
 * @typedef {{key: string, title: string, help: string, metric: string, kind: "agent" | "pair", range?: [number, number],
 *   points?: boolean, zero?: boolean, raw?: boolean, hero?: boolean, size?: PanelSize, lanes?: Lane[]}} ChartSpec
 *   zero: a line at 0, always in view;  hero: one of the large pictures before the others;
 *   lanes: of a heat map, which has these lanes for each pair;  size: if it is not small;
 *   raw: never smoothed, because each point is an evaluation or a mean over steps already
 * @typedef {{title: string, note: string, pairs: boolean, charts: ChartSpec[]}} ChartGroup
 */

/** @type {[number, number]} */
const SHARE = [0, 1];

/** @type {ChartGroup[]} */
export const CHART_GROUPS = [
  {
    title: "Learning",
    note: "",
    pairs: false,
    charts: [
      { key: "reward", title: "Reward, mean", help: "Mean reward of this step's own rollouts; without partial credit, the share of correct answers.", metric: "reward/mean", kind: "agent", range: SHARE, hero: true },
      { key: "capability", title: "Capability", help: "Reward averaged over the last K steps, Eq. (9).", metric: "capability", kind: "agent", range: SHARE, raw: true },
      { key: "accuracy", title: "Held-out accuracy", help: "Greedy answers to held-out questions; each dot is an evaluation. Squares on the axis are checkpoints, a dashed line is a restart.", metric: "accuracy", kind: "agent", range: SHARE, points: true, raw: true, hero: true },
      { key: "zero-variance", title: "Prompts with no learning signal", help: "Share of prompts where all of the agent's own answers scored the same.", metric: "frac_reward_zero_std", kind: "agent", range: SHARE },
      { key: "audit", title: "Rewards that the audit contradicts", help: "Of the own rollouts with a second opinion, the share whose reward it contradicts, with algorithm.audit_share.", metric: "audit/disagreement", kind: "agent", range: SHARE },
      { key: "audit-difference", title: "Difference of second opinions", help: "Mean of |reward − second opinion| over the audited rollouts that have one.", metric: "audit/difference", kind: "agent", range: SHARE },
      { key: "resting", title: "Prompts that rest", help: "Share of the training prompts that the curriculum does not ask in their next turn, because they gave no learning signal.", metric: "curriculum/resting_frac", kind: "agent", range: SHARE },
    ],
  },
  {
    title: "Sharing",
    note: "Learner ← source: the colour is the learner's, the dash is the source's.",
    pairs: true,
    charts: [
      { key: "omega", title: "Capability ratio ω", help: "Capability of the source over that of the learner, Eq. (8); above 1 the source is stronger.", metric: "omega", kind: "pair" },
      { key: "used", title: "Rollouts that taught", help: "Share of the source's rollouts of a step whose gradient is not zero.", metric: "used_frac", kind: "pair", range: SHARE },
      { key: "alignment", title: "Gradient alignment", help: "Cosine between the gradients of the source's rollouts and of the learner's own. Theorem 4.3 says positive; below the line at 0 the source pulls the learner away from what its own rollouts teach.", metric: "gradient_alignment", kind: "pair", points: true, zero: true },
      {
        key: "clipping",
        title: "Rollouts outside the clip band",
        help: "Of each pair and step, the share of the source's rollouts above the band (s > 1, upper lane) and below it (lower lane). A > 0: encouraging rollouts, which teach nothing below the band under the paper's clip. A < 0: discouraging ones.",
        metric: "clip_lower_frac",
        kind: "pair",
        range: SHARE,
        raw: true,
        size: "m",
        lanes: [
          { name: "above", metrics: { positive: "clip_upper_frac/positive", negative: "clip_upper_frac/negative", all: "clip_upper_frac" } },
          { name: "below", metrics: { positive: "clip_lower_frac/positive", negative: "clip_lower_frac/negative", all: "clip_lower_frac" } },
        ],
      },
    ],
  },
  {
    title: "Optimisation",
    note: "",
    pairs: false,
    charts: [
      { key: "kl", title: "KL to the starting model, nats", help: "k3 estimate over own rollouts.", metric: "kl", kind: "agent" },
      { key: "length", title: "Completion length, tokens", help: "Mean over own rollouts.", metric: "completions/mean_length", kind: "agent" },
      { key: "turns", title: "Turns of a rollout, mean", help: "Turns that the agent wrote, with rollout.environment.", metric: "turns/mean", kind: "agent" },
      { key: "tool-calls", title: "Tool calls of a rollout, mean", help: "Calls that a tool answered, with rollout.environment.", metric: "tool_calls/mean", kind: "agent" },
      { key: "failed-calls", title: "Failed tool calls", help: "Share of the tool's answers that say that it could not do it.", metric: "tool_calls/failed_frac", kind: "agent", range: SHARE },
      { key: "overlong", title: "Overlong penalty, mean", help: "What algorithm.overlong_cache adds to the rewards of own rollouts in training: 0 for short answers, −1 at max_completion_length.", metric: "overlong_penalty/mean", kind: "agent" },
      { key: "grad-norm", title: "Gradient norm", help: "Before clipping to max_grad_norm.", metric: "grad_norm", kind: "agent" },
      { key: "entropy", title: "Entropy, nats per token", help: "Of the policy on its own rollouts.", metric: "entropy", kind: "agent" },
      { key: "engine-difference", title: "Engine against trainer, nats", help: "Mean difference of log-probabilities on one greedy response after each step's updates; above 0.1 the engine has other weights.", metric: "engine_logp_difference", kind: "agent" },
    ],
  },
];

/**
 * The groups with a chart for each of several rewards and for each of several training sets, after those of the total.
 * @param {ChartGroup[]} groups
 * @param {string[]} [names]
 * @param {string[]} [sets]
 * @returns {ChartGroup[]}
 */
export function withRewards(groups, names = [], word = "accuracy", sets = []) {
  const ofSets = sets.map((name, place) => /** @type {ChartSpec} */ ({ key: `training-set-${place}`, title: `Reward on ${name}, mean`, help: "Of the prompts that are of this training set.", metric: `sets/${name}/reward/mean`, kind: "agent", range: SHARE }));
  const charts = names.map((name) => /** @type {ChartSpec} */ ({ key: `reward-${name}`, title: `Reward ${name}, mean`, help: "One of the rewards that make the total, before its weight.", metric: `rewards/${name}/mean`, kind: "agent", range: SHARE }));
  const titled = (/** @type {ChartSpec} */ spec) => (spec.key === "accuracy" ? { ...spec, title: `Held-out ${word}` } : spec);
  return groups.map((group) => (group.title === "Learning" ? { ...group, charts: [...group.charts.map(titled), ...charts, ...ofSets] } : group));
}

/**
 * A metric's number: a plain value, or the quotient of a (sum, count) ratio.
 * @param {any} payload of a metrics event
 * @param {string} metric
 * @returns {number | null | undefined} undefined if the event does not carry it
 */
export function metricValue(payload, metric) {
  const ratio = payload.ratios?.[metric];
  if (ratio) return ratio[0] !== null && ratio[1] > 0 ? ratio[0] / ratio[1] : null;
  return payload.values?.[metric];
}

/**
 * A line: its points in order of steps. low and high: of the bucket that ends at the step; null if no bucket hides a value.
 * @typedef {{steps: number[], last: number[], low: number[] | null, high: number[] | null, seeds?: number[]}} Line
 */

/** The metrics that a chart draws. @param {ChartSpec} spec */
export function metricsOf(spec) {
  return spec.lanes ? spec.lanes.flatMap((lane) => Object.values(lane.metrics)) : [spec.metric];
}

/** Field of a progress event by the name of the x axis. @type {Record<string, string>} */
const PROGRESS_FIELD = { rollouts: "rollouts_generated", tokens: "tokens_generated", elapsed: "elapsed_s" };

/**
 * @param {string} agent
 * @param {string} source
 */
export function lineKey(agent, source) {
  return source ? `${agent}\n${source}` : agent;
}

export class SeriesStore {
  /** @param {string[]} metrics that it takes from events; more can be added to the list */
  constructor(metrics) {
    this.metrics = metrics;
    /** metric -> line key -> line @type {Map<string, Map<string, Line>>} */
    this.lines = new Map();
    /** The same for the bands over `seeds`, whose `last` is the mean. @type {Map<string, Map<string, Line>>} */
    this.bands = new Map();
    this.points = 0;
    /** Points that came one by one after the last answer; of the longest line. */
    this.tail = 0;
    /** True if only a new answer says what to draw. */
    this.isStale = false;
    this.width = 1;
    this.firstStep = 0;
    this.lastStep = 0;
    /** No event beyond it is taken. */
    this.end = Infinity;
    /** Where steps lie on the x axis; null if it is the step. @type {Map<number, number> | null} */
    this.places = null;
    this.field = "";
  }

  /**
   * @param {Api.BucketsAnswer} answer
   * @param {{last: number | null, x: string}} request
   */
  load(answer, request) {
    this.lines = linesByMetric(answer.lines, answer.grids);
    this.bands = linesByMetric(answer.bands, answer.grids);
    this.width = answer.width;
    this.firstStep = answer.first;
    this.lastStep = answer.last;
    this.end = request.last ?? Infinity;
    this.field = PROGRESS_FIELD[request.x] ?? "";
    this.places = null;
    if (answer.x) {
      const { steps, values } = answer.x;
      this.places = new Map(steps.flatMap((step, index) => (values[index] === null ? [] : [[step, /** @type {number} */ (values[index])]])));
    }
    this.points = 0;
    for (const lines of this.lines.values()) for (const line of lines.values()) this.points += line.steps.length;
    this.tail = 0;
    this.isStale = false;
  }

  /**
   * @param {import("../lib/socket.js").RunEvent} event
   * @returns {string[]} the metrics that changed
   */
  add(event) {
    const step = event.step;
    if (step === null || step === undefined || step < this.firstStep || step > this.end) return [];
    if (event.type === "progress" && this.places) {
      const place = event.payload[this.field];
      if (typeof place === "number") this.places.set(step, place);
      return [...this.lines.keys()];
    }
    if (event.type === "evaluation") return this.#put(event.payload.metric, event, step, event.payload.value);
    if (event.type !== "metrics") return [];
    /** @type {string[]} */
    const changed = [];
    for (const metric of this.metrics) {
      const value = metric === "accuracy" ? undefined : metricValue(event.payload, metric);
      if (value !== undefined) changed.push(...this.#put(metric, event, step, value));
    }
    return changed;
  }

  /**
   * @param {string} metric
   * @param {{agent: string, source: string}} of
   * @param {number} step
   * @param {number | null} value
   * @returns {string[]}
   */
  #put(metric, of, step, value) {
    if (!this.metrics.includes(metric) || value === null) return [];
    const line = lineOf(this.lines, metric, lineKey(of.agent, of.source));
    const end = line.steps.length - 1;
    if (end >= 0 && step <= line.steps[end]) {
      // Sent twice, by the answer and by the socket; or a step that a later attempt repeats.
      if (step !== line.steps[end] || value !== line.last[end]) this.isStale = true;
      return [];
    }
    line.steps.push(step);
    line.last.push(value);
    line.low?.push(value);
    line.high?.push(value);
    this.points += 1;
    if (step > this.lastStep) this.tail += 1;
    this.lastStep = Math.max(this.lastStep, step);
    return [metric];
  }

  /** @param {number} step @returns {number | null} its place on the x axis, null if that is unknown */
  place(step) {
    return this.places ? this.places.get(step) ?? null : step;
  }
}

/**
 * @param {Map<string, Map<string, Line>>} metrics
 * @param {string} metric
 * @param {string} key
 * @returns {Line} a new one if there was none
 */
function lineOf(metrics, metric, key) {
  let lines = metrics.get(metric);
  if (!lines) metrics.set(metric, (lines = new Map()));
  let line = lines.get(key);
  if (!line) lines.set(key, (line = { steps: [], last: [], low: null, high: null }));
  return line;
}

/**
 * @param {(Api.LineAnswer & {seeds?: number[]})[]} answer
 * @param {number[][]} grids
 */
export function linesByMetric(answer, grids) {
  /** @type {Map<string, Map<string, Line>>} */
  const metrics = new Map();
  for (const one of answer) {
    const line = lineOf(metrics, one.metric, lineKey(one.agent, one.source));
    line.steps = grids[one.grid].slice(); // lines grow on their own
    line.last = one.last;
    line.low = one.low ?? null;
    line.high = one.high ?? null;
    line.seeds = one.seeds;
  }
  return metrics;
}
