"""The What-if tab's arithmetic: the weights that recorded rollouts would have had under other settings of HACPO.

First-order: the rollouts, their rewards and their ratios s stay those that were recorded. Other exponents, bounds and
clip modes change weights only; another capability window or clamp changes omega too, and with it baselines and A.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import Any, NamedTuple

from hacrl_web.insight.what_if.rows import NEAR, Block, OutcomeCounts, Rows
from workers.contract.advantages import RewardGroup, advantages, baseline, capability, capability_ratio, divisor
from workers.contract.contribution_weight import single, weigh
from workers.contract.spec.algorithm import AlgorithmSpec
from workers.contract.spec.run import RunSpec

# Settings that act on omega, and so on A as well as on the weight.
ON_OMEGA = ("capability_window", "ratio_min", "ratio_max")
KNOBS = ("alpha", "delta", "delta_step", "cross_clip_gradient", *ON_OMEGA)


@dataclass
class LearnerSource:
    """What one learner took from one source over the chosen steps, itself included. Counts of rollouts.

    by_sign: by the sign of A (-1, 1): evaluated, below, above the band.  unknown: rows that would have an s, but have
    none on record, since their A was 0.
    """

    rows: int = 0
    evaluated: int = 0
    lower: int = 0
    upper: int = 0
    used: int = 0
    weight: float = 0.0  # sum of |weight|
    unknown: int = 0
    omegas: list[float] = field(default_factory=list)
    by_sign: dict[int, list[int]] = field(default_factory=lambda: {-1: [0, 0, 0], 1: [0, 0, 0]})

    def add(self, tally: OutcomeCounts, *, keeps_zero: bool) -> None:
        """Count evaluated rows. keeps_zero: rows of A = 0 are evaluated too, for the KL penalty."""
        for (side, sign), count in tally.places.items():
            if sign == 0 and not keeps_zero:
                continue
            self.evaluated += count
            self.lower += count * (side < 0)
            self.upper += count * (side > 0)
            if sign:
                of_sign = self.by_sign[sign]
                of_sign[0] += count
                of_sign[1] += count * (side < 0)
                of_sign[2] += count * (side > 0)
        self.used += tally.used
        self.weight += tally.weight

    def as_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("rows", "evaluated", "lower", "upper", "used", "unknown")},
            "weight": self.weight,
            "positive": self.by_sign[1],
            "negative": self.by_sign[-1],
            "omega": sum(self.omegas) / len(self.omegas) if self.omegas else None,
            "omega_range": [min(self.omegas), max(self.omegas)] if self.omegas else None,
        }


Pairs = dict[tuple[int, int], LearnerSource]  # (learner, source)
Shared = tuple[dict[int, float], dict[int, float]]  # baselines and divisors, by prompt


def with_hypothetical(spec: RunSpec, knobs: Mapping[str, Any]) -> RunSpec:
    """The run's spec with other values. Error: pydantic.ValidationError, as a form shows it."""
    values = spec.model_dump(mode="json")
    values["algorithm"] |= {name: value for name, value in knobs.items() if name in KNOBS}
    return RunSpec.model_validate(values)


def _penalises(rule: AlgorithmSpec, is_own: bool) -> bool:
    return rule.beta > 0 and (is_own or rule.cross_kl)


def recorded(rows: Rows, rule: AlgorithmSpec) -> Pairs:
    """What the trainer recorded."""
    pairs = _pairs(rows)
    for block in rows.blocks:
        pair = pairs[block.learner, block.source]
        keeps_zero = _penalises(rule, block.is_own)
        pair.add(block.tally, keeps_zero=keeps_zero)
    for (_, learner, source), omega in rows.omegas.items():
        pairs[learner, source].omegas.append(omega)
    return pairs


def hypothetical(rows: Rows, recorded_rule: AlgorithmSpec, rule: AlgorithmSpec) -> Pairs:
    """What the same rollouts would have weighed under another rule."""
    pairs = _pairs(rows)
    is_same = all(getattr(recorded_rule, name) == getattr(rule, name) for name in ON_OMEGA)
    views = {} if is_same else _views(rows, recorded_rule, rule)
    for block in rows.blocks:
        view = views.get((block.step, block.learner))
        pair = pairs[block.learner, block.source]
        keeps_zero = _penalises(rule, block.is_own)
        if view is None and block.is_own:  # nothing that can be turned here acts on it
            pair.add(block.tally, keeps_zero=keeps_zero)
            continue
        advantages: Sequence[float] = block.advantages
        signs, omega = block.signs, block.omega
        if view is not None:
            advantages, omega = view.advantages(block), view.omega(block, rule)
            signs = [(a > 0) - (a < 0) for a in advantages]
            pair.unknown += view.num_unknown(block)
        sides, weights = weigh(rule, block.is_own, block.mini_batch, block.ratios, advantages, omega)
        pair.add(OutcomeCounts.of(sides, signs, weights), keeps_zero=keeps_zero)
    for (step, learner, source), omega in rows.omegas.items():
        view = views.get((step, learner))
        is_changed = view is not None and rule.modulate_gradient and learner != source
        pairs[learner, source].omegas.append(view.factors[source] if view is not None and is_changed else omega)
    return pairs


def _pairs(rows: Rows) -> Pairs:
    return {place: LearnerSource(rows=count) for place, count in rows.counts.items()}


@dataclass
class View:
    """One learner's view of a step under another omega: its factors on sources, and what makes advantages.

    of_source: by source, the baselines and divisors (by prompt) that stand behind its rollouts' advantages.
    """

    factors: dict[int, float]
    of_source: dict[int, Shared]

    def omega(self, block: Block, rule: AlgorithmSpec) -> float:
        return 1.0 if block.is_own or not rule.modulate_gradient else self.factors[block.source]

    def advantages(self, block: Block) -> list[float]:
        return self.of(block.source, block.rewards, block.prompts)

    def of(self, source: int, rewards: Sequence[float], prompts: Sequence[int]) -> list[float]:
        """Advantages of some of a source's rollouts."""
        mus, divisors = self.of_source[source]
        return advantages(rewards, [mus[prompt] for prompt in prompts], [divisors[prompt] for prompt in prompts])

    def num_unknown(self, block: Block) -> int:
        terms = self.of(block.source, block.silent_rewards, block.silent_prompts)
        return len(terms) - terms.count(0.0)


def _views(rows: Rows, recorded_rule: AlgorithmSpec, rule: AlgorithmSpec) -> dict[tuple[int, int], View]:
    """By step and learner, where another window or clamp changes any omega that it sees."""
    views: dict[tuple[int, int], View] = {}
    for step in rows.steps:
        before, after = (ratios(rows, step, one) for one in (recorded_rule, rule))
        if before == after:
            continue
        for learner in range(rows.num_agents):
            views[step, learner] = view_of(rows, step, learner, rule, after)
    return views


Ratios = dict[tuple[int, int], float]


def ratios(rows: Rows, step: int, rule: AlgorithmSpec) -> Ratios:
    """omega(a, b) of a step for all ordered pairs, Eqs. (8) and (9)."""
    agents = range(rows.num_agents)
    if step <= rule.ratio_warmup_steps:
        return {(a, b): 1.0 for a in agents for b in agents}
    strength = [capability(rows.means_until(agent, step), rule.capability_window) for agent in agents]
    return {(a, b): 1.0 if a == b else capability_ratio(strength[a], strength[b], rule) for a in agents for b in agents}


def view_of(rows: Rows, step: int, learner: int, rule: AlgorithmSpec, omega: Ratios) -> View:
    """Baselines and divisors of one learner as workers/agents/objective.py has them, quarantine and options
    included."""
    cache: dict[tuple[int, tuple[int, ...]], Shared] = {}
    of_source = {}
    for source in range(rows.num_agents):
        # Behind a shared rollout may stand its source's baseline.
        whose = source if rule.cross_advantage == "source" else learner
        # The advantages of a source that is not trusted are those that it would have if it were.
        listens = tuple(j for j in range(rows.num_agents) if (step, whose, j) not in rows.quarantined or j == source)
        if (whose, listens) not in cache:
            cache[whose, listens] = _baselines(rows, step, listens, whose, rule, omega)
        of_source[source] = cache[whose, listens]
    return View({j: omega[j, learner] for j in range(rows.num_agents)}, of_source)


def _baselines(
    rows: Rows, step: int, listens: tuple[int, ...], learner: int, rule: AlgorithmSpec, omega: Ratios
) -> Shared:
    groups = rows.groups[step]
    is_plain = rule.advantage == "plain" or len(listens) == 1
    factors = {j: 1.0 if is_plain else single(omega[learner, j]) for j in listens}
    mus = {prompt: baseline(group, listens, learner, factors) for prompt, group in groups.items()}
    place = (step, listens, rule.scale_rewards)
    if place not in rows.divisors:
        rows.divisors[place] = _divisors(groups, listens, rule.scale_rewards)
    return mus, rows.divisors[place]


def _divisors(groups: Mapping[int, RewardGroup], listens: Sequence[int], mode: str) -> dict[int, float]:
    if mode == "batch":
        by = divisor([value for group in groups.values() for value in group.values(listens)], mode)
        return dict.fromkeys(groups, by)
    return {prompt: divisor(group.values(listens), mode) for prompt, group in groups.items()}


class RecordedCheck(NamedTuple):
    """How well this arithmetic gives back what was recorded, at the recorded settings.

    weights, sides: rows that come out bit for bit, of `rows`.  worst: largest relative difference of a weight.
    capabilities: agents and steps that do, of `strengths`.  advantage: largest difference of a recomputed A.
    """

    rows: int
    weights: int
    sides: int
    worst: float
    strengths: int
    capabilities: int
    advantage: float


def check_recorded(rows: Rows, rule: AlgorithmSpec) -> RecordedCheck:
    same = sides_same = total = 0
    worst = advantage_worst = 0.0
    views = {
        (step, learner): view_of(rows, step, learner, rule, ratios(rows, step, rule))
        for step in rows.steps
        for learner in range(rows.num_agents)
    }
    for block in rows.blocks:
        sides, weights = weigh(rule, block.is_own, block.mini_batch, block.ratios, block.advantages, block.omega)
        total += len(weights)
        sides_same += sum(a == b for a, b in zip(sides, block.sides, strict=True))
        for ours, theirs in zip(weights, block.weights, strict=True):
            if ours == theirs:
                same += 1
            else:
                worst = max(worst, abs(ours - theirs) / max(abs(ours), abs(theirs)))
        advantages = views[block.step, block.learner].advantages(block)
        gaps = [abs(a - b) for a, b in zip(advantages, block.advantages, strict=True)]
        advantage_worst = max(advantage_worst, max(gaps, default=0.0))
    strengths = [
        (capability(rows.means_until(agent, step), rule.capability_window), value)
        for (step, agent), value in rows.capabilities.items()
    ]
    exact = sum(isclose(ours, theirs, rel_tol=NEAR) for ours, theirs in strengths)
    return RecordedCheck(total, same, sides_same, worst, len(strengths), exact, advantage_worst)
