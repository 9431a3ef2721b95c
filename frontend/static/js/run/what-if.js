/** The What-if tab: sliders and numbers kept alike, the answer of the API drawn beside what was recorded. */

import { count, make, must, readJson, significant } from "../lib/format.js";

/** @typedef {Api.OutcomeAnswer} Numbers */

const data = readJson("what-if-data");
const WAIT_MS = 60;
const settings = /** @type {HTMLFormElement} */ (must("#settings"));
/** @type {(HTMLInputElement | HTMLSelectElement)[]} */
const controls = [...settings.querySelectorAll("input[name], select[name]")].map((one) => /** @type {HTMLInputElement} */ (one));
/** The values of an untouched page. @type {Record<string, string>} */
const untouched = { first: String(data.first), last: String(data.last) };
for (const [name, value] of Object.entries(data.recorded)) untouched[name] = String(value);

/** @param {string} name */
function slider(name) {
  const range = settings.querySelector(`[data-setting="${name}"] input[type="range"]`);
  return range instanceof HTMLInputElement ? range : null;
}

/** @param {HTMLInputElement | HTMLSelectElement} control */
function isTouched(control) {
  const before = untouched[control.name] ?? "";
  return control.tagName === "SELECT" ? control.value !== before : Number(control.value) !== Number(before);
}

/** The changed controls, as a query of the API and of the page's address. */
function query() {
  const values = new URLSearchParams();
  for (const control of controls) {
    if (isTouched(control) && control.value !== "") values.set(control.name, control.value);
  }
  return values;
}

function readAddress() {
  const values = new URLSearchParams(location.search);
  for (const control of controls) {
    control.value = values.get(control.name) ?? untouched[control.name] ?? "";
    if (control.value === "") control.value = untouched[control.name] ?? ""; // an odd value
    const range = slider(control.name);
    if (range) range.value = control.value;
  }
}

/** @param {number | undefined} part @param {number | undefined} whole */
function share(part, whole) {
  return whole ? `${((100 * (part ?? 0)) / whole).toFixed(1)} %` : "–";
}

/** @param {number | null | undefined} part @param {number | undefined} whole */
function percent(part, whole) {
  return whole && typeof part === "number" ? (100 * part) / whole : null;
}

/** A difference of two numbers that are written with one decimal. @param {number | null} before @param {number | null} after */
function points(before, after) {
  if (before === null || after === null) return "–";
  const change = Number((after - before).toFixed(1));
  return change === 0 ? "0.0" : `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)}`;
}

/** @param {number | null} before @param {number | null} after */
function difference(before, after) {
  if (before === null || after === null || !Number.isFinite(before) || !Number.isFinite(after)) return "–";
  const change = after - before;
  return change === 0 ? "0" : `${change < 0 ? "−" : "+"}${significant(Math.abs(change))}`;
}

/** A small number as a power of ten: `2.4e−7`. @param {number} value */
function power(value) {
  return value.toExponential(1).replace("-", "−");
}

/** @param {number} agent */
function chip(agent) {
  const element = make("span", "chip");
  element.dataset.agent = String(agent);
  element.append(make("span", "", data.agents[agent]));
  element.title = data.agents[agent];
  return element;
}

/** A place in which a wide table scrolls, also by keyboard. @param {string} label */
function scroller(label) {
  const element = make("div", "table-scroll");
  element.tabIndex = 0;
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", label);
  return element;
}

/**
 * One line of a pair's table: what it is, recorded, hypothetical, their difference; changed ones are marked.
 * @param {string} name
 * @param {string} before
 * @param {string} after
 * @param {string} change
 * @param {string} [title]
 */
function line(name, before, after, change, title = "") {
  const row = make("tr");
  const head = make("th", "", name);
  head.scope = "row";
  if (title) head.title = title;
  const cell = make("td", before === after ? "number" : "number is-changed", after);
  row.append(head, make("td", "number", before), cell, make("td", before === after ? "number quiet" : "number is-changed", change));
  return row;
}

/** @param {string} name @param {[number | undefined, number | undefined]} before part and whole @param {[number | undefined, number | undefined]} after @param {string} [title] */
function shareLine(name, before, after, title = "") {
  return line(name, share(...before), share(...after), points(percent(...before), percent(...after)), title);
}

/** @param {string} name @param {number | null} before @param {number | null} after @param {string} [title] */
function numberLine(name, before, after, title = "") {
  return line(name, significant(before), significant(after), difference(before, after), title);
}

/** The evaluated rollouts as a bar: below the band, inside, above. @param {Numbers} numbers @param {string} label */
function bar(numbers, label) {
  const whole = numbers.evaluated || 1;
  const element = make("div", "clip-bar");
  element.setAttribute("role", "img");
  const inside = numbers.evaluated - numbers.lower - numbers.upper;
  element.setAttribute("aria-label", `${label}: ${share(numbers.lower, whole)} below, ${share(inside, whole)} inside, ${share(numbers.upper, whole)} above the band`);
  for (const [kind, part] of /** @type {[string, number][]} */ ([["lower", numbers.lower], ["inside", inside], ["upper", numbers.upper]])) {
    const piece = make("span", `clip-${kind}`);
    piece.style.width = `${(100 * part) / whole}%`;
    element.append(piece);
  }
  return element;
}

/** The steps' omegas in words, for the title. @param {Numbers} before @param {Numbers} after */
function omegaRange(before, after) {
  const words = [before, after].map(({ omega_range: range }) => (range ? range.map(significant).join(" to ") : "none"));
  return `capability of the source over that of the learner, over steps (and prompts, where it is by prompt or subject). Recorded ${words[0]}, hypothetical ${words[1]}`;
}

/** @param {Api.HypotheticalPair} pair */
function pairCard(pair) {
  const { recorded: before, hypothetical: after } = pair;
  const card = make("article", "card pair");
  const title = make("h3", "row");
  title.append(chip(pair.learner), make("span", "quiet", "learns from"), chip(pair.source));
  const place = scroller(`${data.agents[pair.learner]} learns from ${data.agents[pair.source]}`);
  const table = make("table", "table small");
  const head = make("thead");
  const names = make("tr");
  for (const [text, kind] of /** @type {[string, string][]} */ ([["", ""], ["recorded", "number"], ["hypothetical", "number"], ["difference", "number"]])) {
    const cell = make("th", kind, text);
    if (text) cell.scope = "col";
    else cell.append(make("span", "visually-hidden", "number"));
    names.append(cell);
  }
  head.append(names);
  const body = make("tbody");
  body.append(
    shareLine("below the band", [before.lower, before.evaluated], [after.lower, after.evaluated], "clip_lower_frac"),
    shareLine("… of A > 0", [before.positive[1], before.positive[0]], [after.positive[1], after.positive[0]], "clip_lower_frac/positive: high is the delta trap"),
    shareLine("… of A < 0", [before.negative[1], before.negative[0]], [after.negative[1], after.negative[0]], "clip_lower_frac/negative"),
    shareLine("above the band", [before.upper, before.evaluated], [after.upper, after.evaluated], "clip_upper_frac"),
    shareLine("… of A > 0", [before.positive[2], before.positive[0]], [after.positive[2], after.positive[0]], "clip_upper_frac/positive"),
    shareLine("… of A < 0", [before.negative[2], before.negative[0]], [after.negative[2], after.negative[0]], "clip_upper_frac/negative"),
    shareLine("taught", [before.used, before.rows], [after.used, after.rows], `rollouts whose gradient is not zero: recorded ${count(before.used)} of ${count(before.rows)}, hypothetical ${count(after.used)} of ${count(after.rows)}`),
    numberLine("mean |weight|", before.weight / (before.rows || 1), after.weight / (after.rows || 1), "over all valid rollouts of the source, 0 where no gradient flows"),
    shareLine("share of all |weight|", [before.share ?? 0, 1], [after.share ?? 0, 1]),
    numberLine("omega, mean", before.omega, after.omega, omegaRange(before, after)),
  );
  table.append(head, body);
  place.append(table);
  card.append(title, bar(before, "recorded"), bar(after, "hypothetical"), place);
  if (after.unknown) {
    card.append(make("p", "small quiet", `${count(after.unknown)} rollouts had A = 0, so that no s was recorded; with these values they would have an A, and are not counted.`));
  }
  return card;
}

/** Shares with the changed settings, and below each its difference to the recorded one. @param {Api.HypotheticalPair[]} pairs */
function taughtTable(pairs) {
  const place = scroller("Who taught whom");
  const table = make("table", "table taught-table");
  const isChanged = controls.some((control) => control.name !== "first" && control.name !== "last" && isTouched(control));
  table.append(make("caption", "", isChanged ? "hypothetical, and its difference to what was recorded" : "recorded"));
  const head = make("thead");
  const names = make("tr");
  const corner = make("th", "", "learner");
  corner.scope = "col";
  names.append(corner);
  /** @type {string[]} */
  const agents = data.agents;
  agents.forEach((_, source) => {
    const cell = make("th", "number");
    cell.scope = "col";
    cell.append(chip(source));
    names.append(cell);
  });
  head.append(names);
  const body = make("tbody");
  agents.forEach((_, learner) => {
    const row = make("tr");
    const name = make("th");
    name.scope = "row";
    name.append(chip(learner));
    row.append(name);
    agents.forEach((_, source) => {
      const pair = pairs.find((one) => one.learner === learner && one.source === source);
      const part = pair?.hypothetical.share;
      const cell = make("td", "number taught-cell", part === null || part === undefined ? "–" : share(part, 1));
      cell.style.setProperty("--share", String(part ?? 0));
      if (isChanged && pair) {
        const change = points(percent(pair.recorded.share, 1), percent(pair.hypothetical.share, 1));
        cell.append(make("br"), make("span", change === "0.0" ? "small quiet" : "small is-changed", change));
      }
      row.append(cell);
    });
    body.append(row);
  });
  table.append(head, body);
  place.append(table);
  return place;
}

/** Of a learner: the part of its update that came from peers, and the part of their answers that was clipped. */
class Supply {
  /** @param {Api.HypotheticalPair[]} pairs @param {number} learner @param {"recorded" | "hypothetical"} side */
  constructor(pairs, learner, side) {
    const own = pairs.filter((pair) => pair.learner === learner);
    const peers = own.filter((pair) => pair.source !== learner).map((pair) => pair[side]);
    const sum = (/** @type {(one: Numbers) => number} */ of) => peers.reduce((total, one) => total + of(one), 0);
    this.sources = own.map((pair) => ({ source: pair.source, part: pair[side].share ?? 0 })).sort((one, other) => one.source - other.source);
    this.peers = own.some((pair) => pair[side].share !== null) ? 100 * sum((one) => one.share ?? 0) : null;
    this.clipped = percent(sum((one) => one.lower + one.upper), sum((one) => one.evaluated));
  }
}

/** @param {number | null} part */
const whole = (part) => (part === null ? "–" : `${Math.round(part)} %`);

/** The changed settings in words: `With Delta 0.2`. */
function changedSettings() {
  const changed = controls.filter((one) => one.name !== "first" && one.name !== "last" && isTouched(one));
  return changed.map((one) => `${settings.querySelector(`label[for="${one.id}"]`)?.textContent?.trim() ?? one.name} ${one.value}`).join(", ");
}

/** What the settings would have done, in one sentence: of the learner whose peers' share changes most. @param {Supply[]} before @param {Supply[]} after */
function sentence(before, after) {
  const name = (/** @type {number} */ learner) => data.agents[learner];
  const changes = changedSettings();
  if (!changes) {
    const parts = before.map((one, learner) => `${whole(one.peers)} of ${name(learner)}'s update`);
    return `As recorded, peers supplied ${parts.join(", ")}.`;
  }
  const moved = after.map((one, learner) => Math.abs((one.peers ?? 0) - (before[learner]?.peers ?? 0)));
  const most = moved.indexOf(Math.max(...moved));
  const [then, now] = [before[most], after[most]];
  if (!then || !now) return "";
  const clipped = now.clipped === null ? "" : `: ${whole(now.clipped)} of their answers would be clipped, instead of ${whole(then.clipped)}`;
  return `With ${changes}, peers would supply ${whole(now.peers)} of ${name(most)}'s update instead of ${whole(then.peers)}${clipped}.`;
}

/** A learner's update by source, as recorded and as it would be. @param {Supply} before @param {Supply} after @param {number} learner */
function ribbons(before, after, learner) {
  const element = make("div", "ribbon-row");
  const bars = make("div", "ribbon-pair");
  bars.setAttribute("role", "img");
  const words = (/** @type {Supply} */ one) => one.sources.map(({ source, part }) => `${data.agents[source]} ${share(part, 1)}`).join(", ");
  bars.setAttribute("aria-label", `${data.agents[learner]}: recorded ${words(before)}; with these values ${words(after)}`);
  for (const [supply, kind] of /** @type {[Supply, string][]} */ ([[before, "is-recorded"], [after, ""]])) {
    const ribbon = make("div", `ribbon-bar ${kind}`);
    for (const { source, part } of supply.sources) {
      const piece = make("span");
      piece.dataset.agent = String(source);
      piece.style.width = `${100 * part}%`;
      ribbon.append(piece);
    }
    bars.append(ribbon);
  }
  const said = make("span", "small", before.peers === after.peers ? `peers ${whole(after.peers)}` : `peers ${whole(before.peers)} → ${whole(after.peers)}`);
  element.append(chip(learner), bars, said);
  return element;
}

/** The band's lower bound over a step's shared updates: one number if it is constant. @param {Api.BoundsAnswer} bounds */
function bounds({ first, last }) {
  if (first === null || last === null) return "none";
  const [from, to] = [significant(first), significant(last)];
  return from === to ? from : `${from} to ${to}`;
}

/** @param {any} answer */
function draw(answer) {
  /** @type {Api.HypotheticalPair[]} */
  const pairs = answer.pairs;
  const many = answer.is_thinned ? " (evenly spread: all rows of so many steps are too many at once)" : "";
  const [before, after] = answer.bounds ?? [];
  must("#summary").textContent = answer.steps
    ? `${count(answer.rows)} recorded rows of ${count(answer.steps)} ${answer.steps === 1 ? "step" : "steps"}, ${count(answer.first)} to ${count(answer.last)}${many}. Lower bound of the band, from the first to the last shared update of a step where it moves: recorded ${bounds(before)}, hypothetical ${bounds(after)}.`
    : "No rollouts are on record for these steps.";
  const [then, now] = /** @type {const} */ (["recorded", "hypothetical"]).map((side) => data.agents.map((/** @type {string} */ _, /** @type {number} */ learner) => new Supply(pairs, learner, side)));
  must("#answer").textContent = answer.steps ? sentence(then, now) : "";
  must("#ribbons").replaceChildren(...now.map((/** @type {Supply} */ one, /** @type {number} */ learner) => ribbons(then[learner], one, learner)));
  must("#cautions").replaceChildren(...answer.cautions.map((/** @type {string} */ text) => make("p", "alert alert-warning", text)));
  must("#taught").replaceChildren(taughtTable(pairs));
  must("#pairs").replaceChildren(...pairs.filter((pair) => pair.learner !== pair.source).map(pairCard));
  const clone = /** @type {HTMLAnchorElement} */ (must("#clone"));
  clone.href = data.clone + (answer.clone ? `?${answer.clone}` : "");
}

/** The steps whose check is shown. */
let checked = "";

/** How exactly the recorded numbers are reproduced: loaded once for a range of steps. @param {URLSearchParams} values */
async function showCheck(values) {
  const steps = new URLSearchParams({ first: values.get("first") ?? "", last: values.get("last") ?? "", check: "true" });
  if (checked === steps.toString()) return;
  checked = steps.toString();
  const answer = await fetch(`${data.url}?${steps}`).catch(() => null);
  const check = answer?.ok ? (await answer.json()).check : null;
  if (!check || checked !== steps.toString()) return;
  const bits = check.weights === check.rows ? "all bit for bit" : `${count(check.weights)} bit for bit, the others within ${power(check.worst)} of their size`;
  const strengths = check.capabilities === check.strengths ? "all" : `only ${count(check.capabilities)}`;
  must("#check").textContent = `At the recorded values this page gives back ${count(check.sides)} of ${count(check.rows)} recorded clip sides and their weights, ${bits}; ${strengths} of ${count(check.strengths)} recorded capabilities${check.advantage === null ? "" : `; every advantage within ${power(check.advantage)}`}.`;
}

/** @type {AbortController | null} */
let asking = null;

async function ask() {
  asking?.abort();
  asking = new AbortController();
  const results = must("#found");
  results.setAttribute("aria-busy", "true");
  const values = query();
  const text = values.toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
  for (const name of ["first", "last"]) if (!values.has(name)) values.set(name, String(data[name]));
  const problem = must("#refused");
  try {
    const answer = await fetch(`${data.url}?${values}`, { signal: asking.signal });
    const body = await answer.json();
    problem.hidden = answer.ok;
    if (answer.ok) {
      draw(body);
      showCheck(values);
    } else problem.textContent = body.errors?.map((/** @type {{field: string | null, message: string}} */ one) => `${one.field ?? ""}: ${one.message}`).join(" ") ?? "This was refused.";
    results.setAttribute("aria-busy", "false");
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return;
    problem.hidden = false;
    problem.textContent = "The server does not answer. Turn a setting to try again.";
  }
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let waiting;
settings.addEventListener("input", (event) => {
  const turned = event.target;
  if (turned instanceof HTMLInputElement && turned.type === "range") {
    const name = turned.closest("[data-setting]")?.getAttribute("data-setting") ?? "";
    const number = settings.elements.namedItem(name);
    if (number instanceof HTMLInputElement) number.value = turned.value;
  } else if (turned instanceof HTMLInputElement) {
    const range = slider(turned.name);
    if (range) range.value = turned.value;
  }
  clearTimeout(waiting);
  waiting = setTimeout(ask, WAIT_MS);
});
settings.addEventListener("submit", (event) => event.preventDefault());
/** @type {NodeListOf<HTMLButtonElement>} */
const windows = settings.querySelectorAll("button[data-first]");
for (const button of windows) {
  button.addEventListener("click", () => {
    for (const name of ["first", "last"]) /** @type {HTMLInputElement} */ (settings.elements.namedItem(name)).value = button.dataset[name] ?? "";
    ask();
  });
}
must("#reset").addEventListener("click", () => {
  history.replaceState(null, "", location.pathname);
  readAddress();
  ask();
});
readAddress();
ask();
