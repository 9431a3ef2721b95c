/** The Collaboration tab: one chosen step drives every picture; what is chosen is kept in the address. */

import { drawPanels } from "./clipping.js";
import { Influential } from "./influential.js";
import { drawLedger, drawRescuedPrompts } from "./ledger.js";
import { MEASURES, drawMatrix, moveByKeys } from "./matrix.js";
import { OmegaMap } from "./omega.js";
import { drawPicture } from "./picture.js";
import { DASHES, count, cut, make, must, readJson } from "../lib/format.js";
import { drawLines } from "../lib/svg.js";

/** @typedef {import("./picture.js").SumsView} SumsView */
/** @typedef {import("./omega.js").Timeline} Timeline */
/** @typedef {import("./clipping.js").Ratios} Ratios */

const POLL_MS = 5000;
const PLAY_MS = 700;
const KEPT = 200;

const page = must("#collaboration");
const rule = readJson("collaboration-data");
const url = page.dataset.url ?? "";
const numAgents = rule.agents.length;

/** @type {{steps: number[], ended: boolean, attempt: number, step: number | null, timeline: Timeline | null, whole: SumsView | null, wholeOf: number}} */
const state = { steps: rule.steps, ended: rule.ended, attempt: rule.attempt, step: null, timeline: null, whole: null, wholeOf: -1 };
/** Answers of the API about steps that are complete. @type {Map<string, any>} */
const answers = new Map();

/** @param {string} id @returns {HTMLSelectElement | null} */
const select = (id) => /** @type {HTMLSelectElement | null} */ (document.getElementById(id));
const controls = { measure: select("measure"), scope: select("scope"), window: select("window"), unit: select("unit"), ledger: select("ledger-scope"), learner: select("learner") };
const range = /** @type {HTMLInputElement} */ (must("#step-range"));
const number = /** @type {HTMLInputElement} */ (must("#step-number"));

/** @returns {number | null} */
function chosenLearner() {
  return controls.learner?.value ? Number(controls.learner.value) : null;
}

/** With many agents the long parts of the page show one learner at a time. @returns {number | null} */
function focusedLearner() {
  return chosenLearner() ?? (numAgents > 3 && rule.shares ? 0 : null);
}

/** Learners whose histograms are fetched. @returns {number[]} */
function histogramLearners() {
  const one = focusedLearner();
  return one === null ? rule.agents.map((/** @type {string} */ _, /** @type {number} */ place) => place) : [one];
}

// ---- the address ---------------------------------------------------------------------------------------------------

/** Controls whose values are in the address, with their defaults. @type {[keyof typeof controls, string, string][]} */
const IN_ADDRESS = [["measure", "measure", "share"], ["scope", "of", "step"], ["window", "window", "1"], ["unit", "unit", "rollouts"], ["ledger", "ledger", "step"], ["learner", "learner", ""]];

function readAddress() {
  const query = new URLSearchParams(location.search);
  for (const [control, name, otherwise] of IN_ADDRESS) {
    const box = controls[control];
    if (!box) continue;
    const value = query.get(name) ?? otherwise;
    box.value = [...box.options].some((option) => option.value === value) ? value : otherwise;
  }
  const step = query.has("step") ? Number(query.get("step")) : Number.NaN;
  state.step = state.steps.length ? (Number.isFinite(step) ? nearest(step) : state.steps[state.steps.length - 1]) : null;
}

function writeAddress() {
  const query = new URLSearchParams();
  // At the end of a live run the address names no step, so that the page opens at the end again.
  const isFollowing = !state.ended && state.step === state.steps[state.steps.length - 1];
  if (state.step !== null && !isFollowing) query.set("step", String(state.step));
  for (const [control, name, otherwise] of IN_ADDRESS) {
    const value = controls[control]?.value ?? otherwise;
    if (value !== otherwise) query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

/** @param {number} step @returns {number} the recorded step nearest to it */
function nearest(step) {
  return state.steps.reduce((best, one) => (Math.abs(one - step) < Math.abs(best - step) ? one : best), state.steps[0]);
}

// ---- the API -------------------------------------------------------------------------------------------------------

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
async function fetchJson(path, signal) {
  const answer = await fetch(`${url}${path}`, { headers: { Accept: "application/json" }, signal });
  if (!answer.ok) throw new Error(answer.status === 401 ? "You are signed out: load the page again." : `The server answered ${answer.status}.`);
  return answer.json();
}

/**
 * As fetchJson, cached: for answers that do not change.
 * @param {string} path
 * @param {AbortSignal} signal
 */
async function fetchOnce(path, signal) {
  const cached = answers.get(path);
  if (cached) return cached;
  const answer = await fetchJson(path, signal);
  answers.set(path, answer);
  if (answers.size > KEPT) answers.delete(/** @type {string} */ (answers.keys().next().value));
  return answer;
}

/** @param {unknown} error */
function showProblem(error) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  const problem = must("#problem");
  problem.textContent = error instanceof TypeError ? "The server cannot be reached. The pictures show what was loaded last." : String(error instanceof Error ? error.message : error);
  problem.hidden = false;
  playing(false);
}

// ---- drawing -------------------------------------------------------------------------------------------------------

const omega = document.querySelector("#omega") ? new OmegaMap(must("#omega"), rule, (step) => choose(step)) : null;
const influential = new Influential(must("#influential"), rule.agents, rule.shares);
if (rule.shares) moveByKeys(must("#matrix"));
let drawing = new AbortController();
/** The answers that the pictures show, to draw them again in another size. @type {{view: SumsView | null, ratios: Map<number, Ratios>}} */
const drawn = { view: null, ratios: new Map() };

async function draw() {
  drawing.abort();
  drawing = new AbortController();
  const { signal } = drawing;
  drawScrubber();
  const one = focusedLearner();
  for (const note of page.querySelectorAll("[data-focus]")) note.textContent = one === null ? "" : `, ${cut(rule.agents[one])} as learner`;
  writeAddress();
  drawTimeline();
  if (state.step === null) return;
  try {
    const step = state.step;
    const view = await fetchOnce(`/step?step=${step}`, signal);
    drawn.view = view;
    drawStep();
    const learner = chosenLearner();
    influential.show(step, state.attempt, learner === null ? "" : rule.agents[learner]);
    const steps = controls.window?.value ?? "1";
    const histograms = rule.shares ? await Promise.all(histogramLearners().map((learner) => fetchOnce(`/ratios?step=${step}&learner=${learner}&window=${steps}`, signal))) : [];
    drawn.ratios = new Map(histograms.map((ratios) => [ratios.learner, ratios]));
    drawClipping();
    page.dataset.drawn = String(step);
    must("#problem").hidden = true;
    if (controls.scope?.value === "run" || controls.ledger?.value === "run") await loadWhole(signal);
  } catch (error) {
    showProblem(error);
  }
}

function drawScrubber() {
  const { steps, step } = state;
  const hasSteps = steps.length > 0;
  must("#scrubber").hidden = !hasSteps;
  must("#no-steps").hidden = hasSteps;
  for (const part of page.querySelectorAll("[data-needs-steps]")) /** @type {HTMLElement} */ (part).hidden = !hasSteps;
  if (step === null) return;
  const place = steps.indexOf(step);
  range.max = String(steps.length - 1);
  range.value = String(place);
  range.setAttribute("aria-valuetext", `step ${step}`);
  number.min = String(steps[0]);
  number.max = String(steps[steps.length - 1]);
  if (document.activeElement !== number) number.value = String(step);
  const isLast = place === steps.length - 1;
  must("#step-note").textContent = `${count(place + 1)} of ${count(steps.length)} recorded${state.ended ? "" : isLast ? ", live: follows the run" : ", live: the run continues"}`;
  for (const shownStep of page.querySelectorAll("[data-step]")) shownStep.textContent = count(step);
}

function drawStep() {
  const view = drawn.view;
  if (!view) return;
  drawFindings(view.sentences ?? []);
  drawPicture(must("#picture"), view, chosenLearner());
  drawScoped();
}

/**
 * Each learner's peers' share and held-out score since the first step.
 * @param {{name: string, peers: string, accuracy: string}[]} agents
 * @param {string} word what the score is called
 */
function drawSoFar(agents, word) {
  const line = must("#so-far");
  line.replaceChildren();
  const lines = agents.filter(({ peers, accuracy }) => peers || accuracy);
  if (!lines.length) return;
  line.append(`From the first recorded step to step ${count(state.steps[state.steps.length - 1])}: `);
  lines.forEach(({ name, peers, accuracy }, place) => {
    const moved = make("abbr", "", "moved");
    moved.title = "The sum of |weight| over the learner's rollouts in the step";
    line.append(make("strong", "", cut(name)), ", ");
    if (peers) line.append("peers' share of what ", moved, ` it ${peers}`);
    if (accuracy) line.append(`${peers ? ", " : ""}held-out ${word} ${accuracy}`);
    line.append(place < lines.length - 1 ? "; " : ".");
  });
}

/** The sentences, in a place of a fixed height: the page below does not jump. @param {Api.SentenceAnswer[]} sentences */
function drawFindings(sentences) {
  const findings = must("#findings");
  findings.replaceChildren(...sentences.map(({ kind, text, prompt_kind, learner, source }) => {
    const line = make("li", kind === "trap" ? "trap" : "", prompt_kind ? `${text} ` : text);
    if (prompt_kind) {
      const link = make("a", "", "Show these rollouts");
      link.setAttribute("href", `${page.dataset.rollouts}?${new URLSearchParams({ step: String(state.step), learner: learner ?? "", source: source ?? "", prompt_kind, sort: "weight" })}`);
      line.append(link);
    }
    return line;
  }));
}

/** The matrix and the ledger, of the step or of the whole run. */
function drawScoped() {
  const measure = /** @type {keyof typeof MEASURES} */ (controls.measure?.value ?? "share");
  const matrix = controls.scope?.value === "run" ? state.whole : drawn.view;
  if (rule.shares) must("#measure-help").textContent = MEASURES[measure] + progressOf(controls.scope?.value);
  if (rule.shares && matrix) drawMatrix(must("#matrix"), matrix, measure, rolloutsOf);
  const ledger = controls.ledger?.value === "run" ? state.whole : drawn.view;
  const unit = controls.unit?.value === "tokens" ? 1 : 0;
  must("#ledger-note").textContent = `Each ${unit ? "token" : "rollout"} that a learner took in has one outcome, so a row's outcomes add up to all. ${unit ? "Tokens are counted as their source generated them." : "A peer's rollout has one outcome with each learner."}${progressOf(controls.ledger?.value)}`;
  if (!ledger) return;
  drawLedger(must("#ledger"), ledger, unit, focusedLearner());
  if (rule.shares) drawRescuedPrompts(must("#rescued-prompts"), ledger, focusedLearner());
}

/** @param {string | undefined} scope */
function progressOf(scope) {
  if (scope !== "run") return "";
  const whole = /** @type {any} */ (state.whole);
  if (!whole) return " Adding up the steps…";
  return whole.done < whole.of ? ` ${count(whole.done)} of ${count(whole.of)} recorded steps are added up so far.` : ` All ${count(whole.of)} recorded steps.`;
}

/** @param {AbortSignal} signal */
async function loadWhole(signal) {
  while (state.wholeOf !== state.steps.length) {
    const answer = await fetchJson("/run", signal);
    state.whole = answer;
    drawScoped();
    if (answer.done >= answer.of) state.wholeOf = state.steps.length;
  }
  drawScoped();
}

/** @param {import("./picture.js").PairSums} pair @returns {string} the address of what its cell counts */
function rolloutsOf(pair) {
  const query = new URLSearchParams({ learner: rule.agents[pair.learner], source: rule.agents[pair.source], sort: "weight" });
  if (controls.scope?.value !== "run") query.set("step", String(state.step));
  if (controls.measure?.value === "positive") query.set("sign", "positive");
  return `${page.dataset.rollouts}?${query}`;
}

function drawClipping() {
  if (!rule.shares || !state.timeline) return;
  const learners = histogramLearners();
  const pairs = learners.flatMap((learner) => rule.agents.flatMap((/** @type {string} */ _, /** @type {number} */ source) => (source === learner ? [] : [{ learner, source }])));
  drawPanels(must("#panels"), pairs, drawn.ratios, state.timeline, rule, state.step, choose);
}

function drawTimeline() {
  const { timeline, step } = state;
  if (!timeline || !rule.shares) return;
  omega?.draw(timeline, step, chosenLearner());
  drawAlignment(timeline);
  if (state.step === null) drawClipping();
}

/** @param {Timeline} timeline */
function drawAlignment(timeline) {
  const one = focusedLearner();
  const pairs = timeline.pairs.filter((pair) => one === null || pair.learner === one);
  const root = must("#alignment");
  if (!pairs.some((pair) => pair.alignment)) {
    root.replaceChildren(make("p", "quiet", "Not measured so far: telemetry.alignment_interval says every how many steps it is."));
    return;
  }
  drawLines(root, {
    lines: pairs.map((pair) => ({
      line: pair.alignment,
      label: `${cut(rule.agents[pair.learner])} ← ${cut(rule.agents[pair.source])}`,
      title: `${rule.agents[pair.learner]} ← ${rule.agents[pair.source]}`,
      colour: `var(--agent-${pair.learner % 8})`,
      dash: DASHES[pair.source % 8].join(" "),
    })),
    bars: pairs.filter((pair) => pair.quarantined.length).map((pair) => ({ places: pair.quarantined, colour: `var(--agent-${pair.learner % 8})`, dash: "none" })),
    first: timeline.first,
    last: timeline.last,
    width: timeline.width,
    range: [-1, 1],
    step: state.step,
    height: 180,
    label: "Gradient alignment of each pair over the steps",
    choose,
  });
}

// ---- selection -----------------------------------------------------------------------------------------------------

/** @param {number} step */
function choose(step) {
  if (!state.steps.length) return;
  const recorded = nearest(step);
  if (recorded === state.step) return;
  state.step = recorded;
  draw();
}

/** @param {number} places */
function move(places) {
  const place = state.steps.indexOf(state.step ?? -1) + places;
  choose(state.steps[Math.min(Math.max(place, 0), state.steps.length - 1)]);
}

let player = 0;

/** @param {boolean} isOn */
function playing(isOn) {
  clearInterval(player);
  player = 0;
  const button = must("#step-play");
  button.setAttribute("aria-pressed", String(isOn));
  button.textContent = isOn ? "Pause" : "Play";
  if (!isOn) return;
  if (state.step === state.steps[state.steps.length - 1]) choose(state.steps[0]);
  player = setInterval(() => {
    if (page.dataset.drawn !== String(state.step)) return; // the last step is not drawn yet
    if (state.step === state.steps[state.steps.length - 1]) playing(false);
    else move(1);
  }, PLAY_MS);
}

/** Move by hand, which ends the playback. @param {number} places */
function moveByHand(places) {
  playing(false);
  move(places);
}

must("#step-back").addEventListener("click", () => moveByHand(-1));
must("#step-next").addEventListener("click", () => moveByHand(1));
must("#step-play").addEventListener("click", () => playing(!player));
range.addEventListener("input", () => {
  playing(false);
  choose(state.steps[Number(range.value)]);
});
number.addEventListener("change", () => {
  playing(false);
  if (number.value !== "") choose(Number(number.value));
  number.value = String(state.step);
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.closest("input:not([type=range]), select, textarea")) return;
  if (event.key === ",") moveByHand(-1);
  if (event.key === ".") moveByHand(1);
});
for (const control of [controls.measure, controls.scope, controls.unit, controls.ledger]) {
  control?.addEventListener("change", () => {
    writeAddress();
    drawScoped();
    const isWhole = controls.scope?.value === "run" || controls.ledger?.value === "run";
    if (isWhole && state.wholeOf !== state.steps.length) loadWhole(drawing.signal).catch(showProblem);
  });
}
for (const control of [controls.window, controls.learner]) control?.addEventListener("change", draw);
addEventListener("popstate", () => {
  readAddress();
  draw();
});

// ---- loading, and following a live run -----------------------------------------------------------------------------

async function load() {
  const answer = await fetchJson("");
  const wasAtEnd = state.step === null || state.step === state.steps[state.steps.length - 1];
  take(answer);
  state.timeline = answer.timeline;
  drawSoFar(answer.so_far, answer.score_word);
  if (wasAtEnd && state.steps.length) state.step = state.steps[state.steps.length - 1];
  await draw();
  drawClipping();
}

/** @param {{steps: number[], ended: boolean, attempt: number}} answer */
function take(answer) {
  if (answer.attempt !== state.attempt) {
    // A resumed run repeats steps: cached answers are old.
    answers.clear();
    state.wholeOf = -1;
  }
  state.attempt = answer.attempt;
  state.steps = answer.steps;
  state.ended = answer.ended;
  if (state.step !== null && !state.steps.includes(state.step)) state.step = state.steps.length ? nearest(state.step) : null;
}

async function follow() {
  if (!document.hidden) {
    try {
      const before = state.steps[state.steps.length - 1];
      const answer = await fetchJson("/steps");
      if (answer.steps[answer.steps.length - 1] !== before || answer.steps.length !== state.steps.length || answer.attempt !== state.attempt || answer.ended !== state.ended) await load();
      must("#problem").hidden = true;
    } catch (error) {
      showProblem(error);
    }
  }
  if (!state.ended) setTimeout(follow, POLL_MS);
}

let width = page.clientWidth;
new ResizeObserver(() => {
  if (Math.abs(page.clientWidth - width) < 8) return;
  width = page.clientWidth;
  drawStep();
  drawTimeline();
  drawClipping();
}).observe(page);

readAddress();
load().catch(showProblem);
if (!state.ended) setTimeout(follow, POLL_MS);
