"""Sums of the rollouts of each ordered pair: as recorded, under another rule, and the check of this arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import Any

from hacrl_web.insight.what_if.learner_step import changed_steps, learner_step_of, ratios
from hacrl_web.insight.what_if.rows import NEAR, OutcomeCounts, RecordedCheck, Rows
from workers.algorithms.base.spec import AlgorithmSpec
from workers.contract.advantages import capability


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

    def add(self, counts: OutcomeCounts, *, with_zero: bool, is_replayed: bool = False) -> None:
        """Count evaluated rows; of replayed ones, only the weight counts.

        with_zero: rows of A = 0 are evaluated too, for the KL penalty.
        """
        self.weight += counts.weight
        if is_replayed:
            return
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
        pairs[block.learner, block.source].add(
            block.recorded_counts, with_zero=with_zero, is_replayed=block.is_replayed
        )
    for (_, learner, source), omega in rows.omegas.items():
        pairs[learner, source].omegas.append(omega)
    return pairs


def hypothetical(rows: Rows, recorded_rule: AlgorithmSpec, rule: AlgorithmSpec) -> Pairs:
    """The sums of the same rollouts under another rule."""
    pairs = _pairs(rows)
    is_same = recorded_rule.capability_options == rule.capability_options
    changed = {} if is_same else changed_steps(rows, recorded_rule, rule)
    for block in rows.blocks:
        learner_step = None if block.is_replayed else changed.get((block.step, block.learner))
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
        pair.add(OutcomeCounts.of(sides, signs, weights), with_zero=with_zero, is_replayed=block.is_replayed)
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
        if block.is_replayed:  # a replayed row's come from the rewards of another step
            continue
        advantages = learner_steps[block.step, block.learner].advantages(block)
        gaps = [abs(a - b) for a, b in zip(advantages, block.advantages, strict=True)]
        advantage_worst = max(advantage_worst, max(gaps, default=0.0))
    strengths = [
        (capability(rows.means_until(agent, step), rule.capability_options.window), value)
        for (step, agent), value in rows.capabilities.items()
    ]
    exact = sum(isclose(ours, theirs, rel_tol=NEAR) for ours, theirs in strengths)
    return RecordedCheck(total, same, sides_same, worst, len(strengths), exact, advantage_worst)
