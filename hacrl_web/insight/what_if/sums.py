"""Sums of the rollouts of each ordered pair: as recorded, under another rule, and the check of this arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import Any

from hacrl_web.insight.what_if.rows import NEAR, Block, OutcomeCounts, RecordedCheck, Rows
from workers.algorithms.base.contribution import float32
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import AlgorithmSpec
from workers.contract.advantages import (
    RewardGroup,
    advantages,
    baseline,
    capability,
    capability_ratio,
    divisor,
)

Shared = tuple[dict[int, float], dict[int, float]]  # baselines and divisors, by prompt
Ratios = dict[tuple[int, int], float]


@dataclass
class LearnerStep:
    """One learner's step under another omega, and the parts of its advantages.

    of_source: by source, the baselines and divisors (by prompt) for the advantages of its rollouts.
    """

    learner: int
    ratios: Ratios
    of_source: dict[int, Shared]

    def factor(self, source: int, rule: AlgorithmSpec) -> float:
        """Omega on a source's rollouts."""
        return self.ratios[source, self.learner] if rule.modulates_gradient and source != self.learner else 1.0

    def advantages(self, block: Block) -> list[float]:
        return self.of(block.source, block.rewards, block.prompts)

    def of(self, source: int, rewards: Sequence[float], prompts: Sequence[int]) -> list[float]:
        """Advantages of some of a source's rollouts."""
        mus, divisors = self.of_source[source]
        return advantages(rewards, [mus[prompt] for prompt in prompts], [divisors[prompt] for prompt in prompts])

    def num_unknown(self, block: Block) -> int:
        terms = self.of(block.source, block.silent_rewards, block.silent_prompts)
        return len(terms) - terms.count(0.0)


def changed_steps(rows: Rows, recorded_rule: AlgorithmSpec, rule: AlgorithmSpec) -> dict[tuple[int, int], LearnerStep]:
    """The steps in which the rule changes an omega, by step and learner."""
    steps: dict[tuple[int, int], LearnerStep] = {}
    for step in rows.steps:
        after = ratios(rows, step, rule)
        if after != ratios(rows, step, recorded_rule):
            for learner in range(rows.num_agents):
                steps[step, learner] = learner_step_of(rows, step, learner, rule, after)
    return steps


def ratios(rows: Rows, step: int, rule: AlgorithmSpec) -> Ratios:
    """omega(a, b) of a step for all ordered pairs, Eqs. (8) and (9)."""
    agents, options = range(rows.num_agents), rule.capability_options
    if step <= options.warmup_steps:
        return {(a, b): 1.0 for a in agents for b in agents}
    strengths = [capability(rows.means_until(agent, step), options.window) for agent in agents]
    return {
        (a, b): 1.0 if a == b else capability_ratio(strengths[a], strengths[b], options) for a in agents for b in agents
    }


def learner_step_of(rows: Rows, step: int, learner: int, rule: AlgorithmSpec, omega: Ratios) -> LearnerStep:
    """The advantages that SharingSpec.objective computes, with quarantine and all options."""
    cache: dict[tuple[int, tuple[int, ...]], Shared] = {}
    of_source = {}
    for source in range(rows.num_agents):
        # With cross_advantage "source" a shared rollout has its source's baseline.
        owner = source if isinstance(rule, SharingSpec) and rule.cross_advantage == "source" else learner
        # The advantages of an untrusted source are those that it would have if it were trusted.
        in_baseline = tuple(
            j for j in range(rows.num_agents) if (step, owner, j) not in rows.quarantined or j == source
        )
        if (owner, in_baseline) not in cache:
            cache[owner, in_baseline] = _baselines(rows, step, in_baseline, owner, rule, omega)
        of_source[source] = cache[owner, in_baseline]
    return LearnerStep(learner, omega, of_source)


def _baselines(
    rows: Rows, step: int, in_baseline: tuple[int, ...], learner: int, rule: AlgorithmSpec, omega: Ratios
) -> Shared:
    groups = rows.groups[step]
    is_plain = not rule.weighs_baseline or len(in_baseline) == 1
    factors = {j: 1.0 if is_plain else float32(omega[learner, j]) for j in in_baseline}
    mus = {prompt: baseline(group, in_baseline, learner, factors) for prompt, group in groups.items()}
    place = (step, in_baseline, rule.scale_rewards)
    if place not in rows.divisors:
        rows.divisors[place] = _divisors(groups, in_baseline, rule.scale_rewards)
    return mus, rows.divisors[place]


def _divisors(groups: Mapping[int, RewardGroup], in_baseline: Sequence[int], mode: str) -> dict[int, float]:
    if mode == "batch":
        by = divisor([value for group in groups.values() for value in group.values(in_baseline)], mode)
        return dict.fromkeys(groups, by)
    return {prompt: divisor(group.values(in_baseline), mode) for prompt, group in groups.items()}


@dataclass
class LearnerSource:
    """One learner's rows from one source (itself included) over the steps, counted.

    by_sign: by the sign of A (-1, 1): evaluated, below, above the band.  unknown: rows that would have an s, but for
    which none is recorded, because their A was 0.
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

    def add(self, counts: OutcomeCounts, *, with_zero: bool) -> None:
        """Count evaluated rows. with_zero: those of A = 0 too, for the KL penalty."""
        self.weight += counts.weight
        for (side, sign), count in counts.places.items():
            if sign == 0 and not with_zero:
                continue
            self.evaluated += count
            self.lower += count * (side < 0)
            self.upper += count * (side > 0)
            if sign:
                of_sign = self.by_sign[sign]
                of_sign[0] += count
                of_sign[1] += count * (side < 0)
                of_sign[2] += count * (side > 0)
        self.used += counts.used

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


def recorded(rows: Rows, rule: AlgorithmSpec) -> Pairs:
    """The sums as the trainer recorded them."""
    pairs = _pairs(rows)
    for block in rows.blocks:
        with_zero = rule.penalises(block.is_own)
        pairs[block.learner, block.source].add(block.recorded_counts, with_zero=with_zero)
    for (_, learner, source), omega in rows.omegas.items():
        pairs[learner, source].omegas.append(omega)
    return pairs


def hypothetical(rows: Rows, recorded_rule: AlgorithmSpec, rule: AlgorithmSpec) -> Pairs:
    """The sums of the same rollouts under another rule."""
    pairs = _pairs(rows)
    is_same = recorded_rule.capability_options == rule.capability_options
    changed = {} if is_same else changed_steps(rows, recorded_rule, rule)
    for block in rows.blocks:
        learner_step = changed.get((block.step, block.learner))
        pair = pairs[block.learner, block.source]
        with_zero = rule.penalises(block.is_own)
        if learner_step is None and block.is_own:  # no hypothetical setting acts on it
            pair.add(block.recorded_counts, with_zero=with_zero)
            continue
        advantages: Sequence[float] = block.advantages
        signs, omega = block.signs, block.omega
        if learner_step is not None:
            advantages, omega = learner_step.advantages(block), learner_step.factor(block.source, rule)
            signs = [(a > 0) - (a < 0) for a in advantages]
            pair.unknown += learner_step.num_unknown(block)
        sides, weights = rule.weigh(block.is_own, block.mini_batch, block.ratios, block.weighed(advantages), omega)
        pair.add(OutcomeCounts.of(sides, signs, weights), with_zero=with_zero)
    for (step, learner, source), omega in rows.omegas.items():
        learner_step = changed.get((step, learner))
        pairs[learner, source].omegas.append(learner_step.factor(source, rule) if learner_step else omega)
    return pairs


def _pairs(rows: Rows) -> Pairs:
    return {place: LearnerSource(rows=count) for place, count in rows.counts.items()}


def check_recorded(rows: Rows, rule: AlgorithmSpec) -> RecordedCheck:
    """The recorded numbers beside those that this arithmetic gives at the recorded settings."""
    same = sides_same = total = 0
    worst = advantage_worst = 0.0
    learner_steps = {
        (step, learner): learner_step_of(rows, step, learner, rule, ratios(rows, step, rule))
        for step in rows.steps
        for learner in range(rows.num_agents)
    }
    for block in rows.blocks:
        place = (block.is_own, block.mini_batch, block.ratios, block.weighed(block.advantages), block.omega)
        sides, weights = rule.weigh(*place)
        total += len(weights)
        sides_same += sum(a == b for a, b in zip(sides, block.sides, strict=True))
        for ours, theirs in zip(weights, block.weights, strict=True):
            if ours == theirs:
                same += 1
            else:
                worst = max(worst, abs(ours - theirs) / max(abs(ours), abs(theirs)))
        advantages = learner_steps[block.step, block.learner].advantages(block)
        gaps = [abs(a - b) for a, b in zip(advantages, block.advantages, strict=True)]
        advantage_worst = max(advantage_worst, max(gaps, default=0.0))
    strengths = [
        (capability(rows.means_until(agent, step), rule.capability_options.window), value)
        for (step, agent), value in rows.capabilities.items()
    ]
    exact = sum(isclose(ours, theirs, rel_tol=NEAR) for ours, theirs in strengths)
    return RecordedCheck(total, same, sides_same, worst, len(strengths), exact, advantage_worst)
