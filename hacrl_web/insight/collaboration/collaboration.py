"""Who taught whom in a step or in a whole run: sums as the Collaboration tab draws them, and sentences about them.

Shares of |weight| are within one learner: weights of different learners move different models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from hacrl_web.insight.collaboration.step_summary import OUTCOMES, Summary, summary_of
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.metric_series import read_series
from hacrl_web.runs.telemetry.scores import accuracies
from workers.algorithms.base.spec import CAPABILITY_FLOOR
from workers.contract.events import TEXT_DIFFERENCES
from workers.contract.spec.run import RunSpec

TRAP_AT = 0.8  # share of a source's encouraging answers below the band; from here on an alert is raised too
MOST_TRAPS = 3  # with a sentence each
GENERATED = ("rollouts", "tokens", "verified", "verified_tokens")
BY_SIGN = ("weight", "lost", "evaluated", "lower", "upper")
NOTHING: Counter[str] = Counter()

Sentence = dict[str, str]


def view(spec: RunSpec, summary: Summary, step: int | None = None) -> dict[str, Any]:
    """Agents and ordered pairs (own ones included) by their places in the run's list of agents.

    step: the one that was summed up; None for several, which have no common omega.
    """
    names = [agent.name for agent in spec.agents]
    shares = spec.algorithm.shares_rollouts and len(names) > 1
    sums_by_agent = [summary.generated.get(name, NOTHING) for name in names]
    generated = [{key: sums[key] for key in GENERATED} | {"correct": sums["correct"]} for sums in sums_by_agent]
    pairs = []
    for learner, name in enumerate(names):
        for source, other in enumerate(names):
            if learner != source and not shares:
                continue
            by_pair = {"learner": learner, "source": source, **_pair(summary, name, other)}
            by_pair |= _omega(spec, step, summary.factors.get((name, other)), is_own=learner == source)
            # With max_sources_per_learner a learner does not use every source in each step.
            pairs.append(by_pair | {"not_drawn": max(0, generated[source]["verified"] - by_pair["rows"])})
    return {
        "agents": [{"name": name, **counts} for name, counts in zip(names, generated, strict=True)],
        "pairs": pairs,
    }


def add_text_differences(run: Run, picture: dict[str, Any], steps: Collection[int]) -> dict[str, Any]:
    """A view whose agents have the numbers of rollouts, by cause, whose text is not what was sampled in these steps."""
    prefix = "text_difference/"
    for agent in picture["agents"]:
        agent["text_differences"] = dict.fromkeys(TEXT_DIFFERENCES, 0)
    by_name = {agent["name"]: agent["text_differences"] for agent in picture["agents"]}
    for line in read_series(run, {prefix + cause for cause in TEXT_DIFFERENCES}):
        count = sum(value for step, value in line.points() if step in steps)
        if line.agent in by_name:
            by_name[line.agent][line.metric.removeprefix(prefix)] = round(count)
    return picture


def _pair(summary: Summary, learner: str, source: str) -> dict[str, Any]:
    """The outcomes of a source's rollouts with one learner.

    Outcomes are [rollouts, tokens]; lists by sign are [A > 0, A < 0]; rescue and avoided are [prompts, of them taught].
    """
    sums, prompts = (sums_of.get((learner, source), NOTHING) for sums_of in (summary.pairs, summary.prompts))
    outcomes = {name: [sums[name], sums[f"{name}_tokens"]] for name in OUTCOMES}
    return {
        "rows": sums["rows"],
        "tokens": sums["tokens"],
        **outcomes,
        "other": [
            sums["rows"] - sum(n for n, _ in outcomes.values()),
            sums["tokens"] - sum(n for _, n in outcomes.values()),
        ],
        "dropped": {
            place[2]: [dropped["rows"], dropped["tokens"]]
            for place, dropped in sorted(summary.dropped.items())
            if place[:2] == (learner, source)
        },
        **{name: [sums[f"{name}_positive"], sums[f"{name}_negative"]] for name in BY_SIGN},
        "positives_are_correct": sums["evaluated_positive"] > 0 and not sums["incorrect_positive"],
        "prompts": prompts["prompts"],
        "rescue": [prompts["rescued"], prompts["rescued_taught"]],
        "avoided": [prompts["avoided"], prompts["avoided_taught"]],
    }


def _omega(
    spec: RunSpec, step: int | None, factors: tuple[float | None, ...] | None, *, is_own: bool
) -> dict[str, Any]:
    """The factor on the weights of the pair's rollouts in a step, and whether the clamp of Eq. (8) changed it.

    Runs of earlier versions may have several, by prompt: omega is the highest, omega_low the lowest.
    """
    omega, learner, source, lowest = factors or (None, None, None, None)
    options = spec.algorithm.capability_options
    is_weighed = not is_own and spec.algorithm.modulates_gradient and lowest == omega
    clamped = False
    if is_weighed and learner and source and step is not None and step > options.warmup_steps:
        is_lost = max(learner, source) <= CAPABILITY_FLOOR
        clamped = is_lost or not options.ratio_min <= source / learner <= options.ratio_max
    return {"omega": omega, "omega_low": lowest, "capability": learner, "source_capability": source, "clamped": clamped}


def short(name: str) -> str:
    """A name, cut as js/lib/format.js cuts it."""
    return name if len(name) <= 20 else f"{name[:12]}…{name[-7:]}"


def as_percent(part: float, whole: float) -> str:
    """`87 %`; 0 % and 100 % only if they are exact."""
    if not whole:
        return "–"
    share = 100 * part / whole
    if 0 < share < 1:
        return "under 1 %"
    if 99 < share < 100:
        return "over 99 %"
    return f"{share:.0f} %"


def sentences(spec: RunSpec, picture: dict[str, Any]) -> list[Sentence]:
    """What a view shows, in plain words; kind `trap` from the alert's limit on.

    If a sentence is about certain rollouts, `learner`, `source` and `prompt_kind` filter the Rollouts tab for them.
    """
    names = [short(agent["name"]) for agent in picture["agents"]]
    cross = [pair for pair in picture["pairs"] if pair["learner"] != pair["source"]]
    result = [{"kind": "trap", "text": text} for text in _traps(spec, names, cross)]
    for learner in range(len(names)):
        pairs = [pair for pair in picture["pairs"] if pair["learner"] == learner]
        text = _teachers(names, pairs) if len(pairs) > 1 else _alone(names[learner], pairs[0])
        result += [{"kind": "teach", "text": text}] if text else []
    if len(names) == 2:  # more pairs are easier to read in their table
        for pair in cross:
            between = {"learner": spec.agents[pair["learner"]].name, "source": spec.agents[pair["source"]].name}
            result += [{"kind": "prompts", **between, **sentence} for sentence in _on_prompts(names, pair)]
    return result


def _traps(spec: RunSpec, names: Sequence[str], pairs: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence for each trapped pair, or one for all if they are many."""
    trapped = [(pair, text) for pair in pairs if (text := trap(spec, names, pair))]
    if len(trapped) <= MOST_TRAPS:
        return [text for _, text in trapped]
    worst = sorted((pair for pair, _ in trapped), key=lambda pair: -pair["lower"][0] / pair["evaluated"][0])
    most = ", ".join(
        f"{names[pair['learner']]} ← {names[pair['source']]} {as_percent(pair['lower'][0], pair['evaluated'][0])}"
        for pair in worst[:MOST_TRAPS]
    )
    return [
        f"Delta trap in {len(trapped)} of {len(pairs)} pairs (learner ← source): at least "
        f"{as_percent(TRAP_AT, 1)} of the source's encouraging answers lie below the "
        f"learner's band and teach it nothing. The highest: {most}."
    ]


def trap(spec: RunSpec, names: Sequence[str], pair: dict[str, Any]) -> str:
    """The sentence on one pair's delta trap; empty below the limit of the alert."""
    below, of = pair["lower"][0], pair["evaluated"][0]
    if not spec.algorithm.drops_outside_band or not of or below / of < TRAP_AT:
        return ""
    learner, source = names[pair["learner"]], names[pair["source"]]
    answers = "correct answers" if pair["positives_are_correct"] else "encouraging answers (A > 0)"
    return (
        f"{as_percent(below, of)} of {source}'s {answers} lie below {learner}'s band: they teach {learner} nothing "
        f"({below} of {of}; from {as_percent(TRAP_AT, 1)} on this is a delta trap)."
    )


def _teachers(names: Sequence[str], pairs: Sequence[dict[str, Any]]) -> str:
    """The sentence on the sources of one learner."""
    learner = names[pairs[0]["learner"]]
    total = sum(sum(pair["weight"]) for pair in pairs)
    peers = [pair for pair in pairs if pair["source"] != pair["learner"]]
    if not any(pair["rows"] for pair in pairs):
        return ""
    if not total:
        return f"Nothing moved {learner}: every weight is 0."
    best = max(peers, key=lambda pair: sum(pair["weight"]))
    shared = sum(sum(pair["weight"]) for pair in peers)
    if not shared:
        return f"{learner} learned from itself alone: no rollout of a peer had a weight."
    used, rows = sum(pair["used"][0] for pair in peers), sum(pair["rows"] for pair in peers)
    lost = sum(sum(pair["lost"]) for pair in peers)
    sources = names[best["source"]] if len(peers) == 1 else "Peers"
    most = "" if len(peers) == 1 else f", most from {names[best['source']]} ({as_percent(sum(best['weight']), total)})"
    clipped = f"; {lost} clipped" if lost else ""
    share = f"{sources} supplied {as_percent(shared, total)} of {learner}'s update{most}"
    return f"{share}: {used} of {rows} shared answers taught{clipped}."


def _alone(name: str, pair: dict[str, Any]) -> str:
    """The sentence on an agent without peers: the outcomes of its own rollouts."""
    if not pair["rows"]:
        return ""
    rest = [f"{pair['zero'][0]} had no advantage"] if pair["zero"][0] else []
    rest += [f"{pair['clipped'][0]} clipped"] if pair["clipped"][0] else []
    return "; ".join([f"{pair['used'][0]} of {pair['rows']} own rollouts taught {name}", *rest]) + "."


def _on_prompts(names: Sequence[str], pair: dict[str, Any]) -> list[Sentence]:
    """The sentences on rescued and on avoided prompts."""
    learner, source = names[pair["learner"]], names[pair["source"]]
    result = []
    if pair["rescue"][0]:
        text = (
            f"Rescue: on {pair['rescue'][0]} of {pair['prompts']} prompts {learner} had no correct answer and {source} "
            f"had one; on {pair['rescue'][1]} of them it taught {learner}."
        )
        result.append({"prompt_kind": "rescue", "text": text})
    if pair["avoided"][0]:
        text = (
            f"Counter-examples: on {pair['avoided'][0]} of {pair['prompts']} prompts {learner} was always correct and "
            f"{source} was not; on {pair['avoided'][1]} of them {learner} learned from an incorrect answer of {source}."
        )
        result.append({"prompt_kind": "mistake", "text": text})
    return result


def so_far(run: Run, steps: dict[int, int]) -> list[dict[str, Any]]:
    """The peers' share of what moved each agent, and its held-out score, at the first and at the newest step.

    steps: from recorded_steps. Empty if no step is recorded; an unknown part is an empty text.
    """
    if not steps:
        return []
    ends = [summary_of(run, steps, step) for step in (min(steps), max(steps))]
    scores = accuracies(run)
    result = []
    for name in run.agent_names:
        first, newest = (peers_share(summary, name) for summary in ends)
        values = [scores[step][name] for step in sorted(scores) if name in scores[step]]
        accuracy = f"{values[0]:.3f} → {values[-1]:.3f}" if len(values) > 1 else ""
        peers = f"{first} → {newest}" if first and newest else ""
        result.append({"name": name, "peers": peers, "accuracy": accuracy})
    return result


def peers_share(summary: Summary, learner: str) -> str:
    """The peers' share of |weight| in one learner's step; empty if all weights are 0 or it has no peer."""
    weights = {
        source: sums["weight_positive"] + sums["weight_negative"]
        for (to, source), sums in summary.pairs.items()
        if to == learner
    }
    total = sum(weights.values())
    return as_percent(total - weights.get(learner, 0.0), total) if total and len(weights) > 1 else ""
