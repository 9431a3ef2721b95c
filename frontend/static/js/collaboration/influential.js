/** The rollouts of a step that moved a learner most: a list, and one of them beside the learner's own best answer. */

import { count, cut, make, must, score, significant } from "../lib/format.js";

const KEPT = 100;
const MINUS = "\u2212";

/** @param {number} weight */
const signed = (weight) => (weight < 0 ? MINUS : "+") + significant(Math.abs(weight));

export class Influential {
  /**
   * @param {HTMLElement} root its data-url is the API, data-rollouts the Rollouts tab
   * @param {string[]} agents
   * @param {boolean} shares
   */
  constructor(root, agents, shares) {
    this.root = root;
    this.agents = agents;
    this.shares = shares;
    this.wanted = "";
    /** The largest height so far, and the width it was measured at: the next step does not move what is below. */
    this.reserved = { width: 0, height: 0 };
    /** @type {Map<string, Api.InfluentialAnswer>} */
    this.answers = new Map();
  }

  /**
   * Shows a step's rollouts.
   * @param {number} step
   * @param {number} attempt a resumed run repeats steps
   * @param {string} [learner] one learner alone
   */
  async show(step, attempt, learner = "") {
    const query = new URLSearchParams(learner ? { step: String(step), learner } : { step: String(step) });
    const key = `${attempt} ${query}`;
    if (key === this.wanted) return;
    this.wanted = key;
    let answer = this.answers.get(key);
    if (!answer) {
      const response = await fetch(`${this.root.dataset.url}?${query}`, { headers: { Accept: "application/json" } }).catch(() => null);
      if (!response?.ok) {
        this.wanted = ""; // the next look tries again; the page says that the connection is lost
        return;
      }
      answer = /** @type {Api.InfluentialAnswer} */ (await response.json());
      this.answers.set(key, answer);
      if (this.answers.size > KEPT) this.answers.delete(/** @type {string} */ (this.answers.keys().next().value));
    }
    if (key === this.wanted) this.#draw(step, learner, answer.items); // else the reader has moved on
  }

  /**
   * @param {number} step
   * @param {string} learner
   * @param {Api.InfluentialRollout[]} items
   */
  #draw(step, learner, items) {
    for (const place of this.root.querySelectorAll("[data-influential-step]")) place.textContent = count(step);
    must("[data-all]", this.root).setAttribute("href", this.#address({ step: String(step), learner }));
    const largest = Math.max(...items.map(({ weight }) => Math.abs(weight)), 0) || 1;
    must("[data-list]", this.root).replaceChildren(...items.map((item) => this.#line(item, step, Math.abs(item.weight) / largest)));
    if (items.length) this.#feature(items[0], step);
    else must("[data-strongest]", this.root).replaceChildren(make("p", "quiet", this.shares ? "No shared rollout taught in this step." : "No rollout taught in this step."));
    this.root.dataset.drawn = String(step);
    this.#reserve();
  }

  /** Keeps the height of the fullest rollout shown, and no more. */
  #reserve() {
    const strongest = must("[data-strongest]", this.root);
    strongest.style.minHeight = "0";
    const { offsetWidth: width, offsetHeight: height } = strongest;
    if (width !== this.reserved.width) this.reserved = { width, height: 0 };
    this.reserved.height = Math.max(this.reserved.height, height);
    strongest.style.minHeight = `${this.reserved.height}px`;
  }

  /** @param {Record<string, string>} query @returns {string} of rollouts by weight */
  #address(query) {
    const entries = Object.entries({ ...query, ...(this.shares ? { shared: "yes" } : {}), sort: "weight" });
    return `${this.root.dataset.rollouts}?${new URLSearchParams(entries.filter(([, value]) => value))}`;
  }

  /** @param {Api.InfluentialRollout} item @param {number} step */
  #addressOf(item, step) {
    return this.#address({ step: String(step), learner: item.learner, source: item.source, rollout: String(item.seq) });
  }

  /**
   * @param {Api.InfluentialRollout} item
   * @param {number} step
   * @param {number} share of the largest |weight|
   */
  #line(item, step, share) {
    const line = make("li");
    const link = make("a", "influential-line");
    link.href = this.#addressOf(item, step);
    const bar = make("span", item.weight < 0 ? "influential-bar is-negative" : "influential-bar");
    bar.style.setProperty("--share", String(share));
    const prompt = make("span", "mono cut", item.prompt.trim().replace(/\s+/g, " ") || item.prompt_id);
    const between = make("span", "small quiet cut", item.source === item.learner ? cut(item.learner) : `${cut(item.source)} → ${cut(item.learner)}`);
    link.append(prompt, between, make("span", "small quiet number", item.count > 1 ? `×${count(item.count)}` : ""), verdict(item.reward, false), make("strong", "number", signed(item.weight)), bar);
    for (const kind of ["pointerenter", "focus"]) {
      link.addEventListener(kind, () => {
        this.#feature(item, step);
        this.#reserve();
      });
    }
    line.append(link);
    return line;
  }

  /** One rollout beside the learner's own best answer. @param {Api.InfluentialRollout} item @param {number} step */
  #feature(item, step) {
    const title = make("h3", "row");
    const isOwn = item.source === item.learner;
    title.append(this.#chip(item.source), make("span", "quiet", isOwn ? "learned from its own answer" : "taught"));
    if (!isOwn) title.append(this.#chip(item.learner));
    if (!isOwn && item.weight < 0) title.append(make("span", "quiet", "what to avoid"));
    title.append(make("span", "row-end number", `weight ${signed(item.weight)}`));
    const why = make("a", "small", "Why this weight");
    why.href = `${this.#addressOf(item, step)}&part=weight`;
    const strongest = must("[data-strongest]", this.root);
    if (!item.parts.length) {
      strongest.replaceChildren(title, make("p", "quiet", "The texts of this step are no longer kept."), why);
      return;
    }
    const answers = make("div", "strongest-answers");
    answers.append(this.#answer(item.source, item.reward, item.count > 1 ? `×${count(item.count)}` : "", item.parts));
    const { own } = item;
    if (own) answers.append(this.#answer(item.learner, own.reward, `own best, ${count(own.count)} of ${count(own.of)}`, own.parts));
    strongest.replaceChildren(title, make("pre", "strongest-prompt", item.prompt), answers, why);
  }

  /**
   * @param {string} agent
   * @param {number | null} reward
   * @param {string} note
   * @param {Api.TextPart[]} parts
   */
  #answer(agent, reward, note, parts) {
    const box = make("div", "rollout");
    box.dataset.agent = String(this.agents.indexOf(agent));
    const head = make("p", "row small");
    head.append(this.#chip(agent), make("span", "quiet", note), verdict(reward, true));
    const text = make("pre");
    text.append(...parts.map(({ text: part, differs }) => make(differs ? "mark" : "span", "", part)));
    box.append(head, text);
    return box;
  }

  /** @param {string} name */
  #chip(name) {
    const chip = make("span", "chip");
    chip.dataset.agent = String(this.agents.indexOf(name));
    chip.title = name;
    chip.append(make("span", "", name));
    return chip;
  }
}

/** Whether an answer is correct, in a sign and a word. @param {number | null} reward @param {boolean} hasWord */
function verdict(reward, hasWord) {
  const [sign, word] = reward === null ? ["–", "unscorable"] : reward > 0 ? ["✓", "correct"] : ["✗", "incorrect"];
  const box = make("span", `verdict is-${word}`);
  const symbol = make("span", "", sign);
  symbol.setAttribute("aria-hidden", "true");
  box.append(symbol, make("span", hasWord ? "" : "visually-hidden", ` ${word}`));
  if (reward !== null) box.title = `reward ${score(reward)}`;
  return box;
}
