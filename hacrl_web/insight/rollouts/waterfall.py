"""The weight of one rollout for each learner, as factors from s to the weight, drawn on one log scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hacrl_web.runs.models import Contribution
from workers.algorithms.base.contribution import Factor, WeightedRow, factors
from workers.algorithms.base.spec import AlgorithmSpec

WIDTH = 100.0  # of the drawing, in its own units


@dataclass(frozen=True)
class Bar:
    """One factor: from the product before it to the product after it, in drawing units."""

    factor: Factor
    start: float
    width: float
    kind: str  # up, down, zero, same
    is_negative: bool


@dataclass(frozen=True)
class LearnerContribution:
    """The contribution of a rollout to one learner, and the equation of its weight."""

    learner: str
    position: int
    row: Contribution
    equation: str


@dataclass(frozen=True)
class Waterfall:
    """The factors of a contribution's weight and their product; without factors, why there are none."""

    contribution: LearnerContribution
    bars: list[Bar]
    ticks: list[tuple[float, str]]  # place and power of ten
    product: float | None
    why_none: str

    @property
    def gap(self) -> float | None:
        """Relative difference of the product and the recorded weight."""
        weight = self.contribution.row.weight
        if self.product is None or weight is None:
            return None
        return abs(self.product - weight) / max(abs(weight), abs(self.product), 1e-300)


def _weighted(row: Contribution) -> WeightedRow:
    return WeightedRow(
        row.agent == row.source,
        row.mini_batch,
        row.sequence_ratio,
        row.advantage or 0.0,
        1.0 if row.omega is None else row.omega,
        row.weight or 0.0,
        row.clipped_ratio,
        1.0 if row.importance is None else row.importance,
    )


def _factors(rule: AlgorithmSpec, row: WeightedRow) -> list[Factor]:
    """The steps from s to the weight; empty if the row has no s."""
    return [] if row.sequence_ratio is None or row.update_index is None else factors(rule.explain(row))


def waterfalls(rule: AlgorithmSpec, contributions: Sequence[LearnerContribution]) -> list[Waterfall]:
    """A waterfall for each contribution, all on one scale."""
    factors_of_each = [_factors(rule, _weighted(one.row)) for one in contributions]
    scale = _Scale([abs(factor.product) for of_one in factors_of_each for factor in of_one])
    return [
        Waterfall(
            contribution,
            _bars(of_one, scale),
            scale.ticks(),
            of_one[-1].product if of_one else None,
            "" if of_one else _why_none(contribution.row),
        )
        for contribution, of_one in zip(contributions, factors_of_each, strict=True)
    ]


def _why_none(row: Contribution) -> str:
    if row.drop_reason:
        return f"Left out of this learner's loss: {row.drop_reason}. Its weight is 0."
    if not row.advantage:
        return "A is 0: the reward is the baseline, so there was nothing to teach or to evaluate. The weight is 0."
    return "No ratio is on record."


class _Scale:
    """The log scale of a picture, from the smallest to the largest product, with room on both sides of 1."""

    def __init__(self, products: Sequence[float]) -> None:
        logs = [math.log10(product) for product in products if 0 < product < math.inf]
        self.low = min(math.floor(2 * min(logs, default=0.0)) / 2, -0.5)
        self.high = max(math.ceil(2 * max(logs, default=0.0)) / 2, 0.5)

    def place(self, product: float) -> float:
        if product <= 0:
            return 0.0
        return round(WIDTH * (min(math.log10(product), self.high) - self.low) / (self.high - self.low), 2)

    def ticks(self) -> list[tuple[float, str]]:
        """Both ends, and each power of ten between them."""
        inner = [float(power) for power in range(math.floor(self.low) + 1, math.ceil(self.high))]
        return [(self.place(10.0**power), f"{10.0**power:.2g}") for power in (self.low, *inner, self.high)]


def _bars(steps: Sequence[Factor], scale: _Scale) -> list[Bar]:
    bars, before = [], 1.0
    for step in steps:
        now = abs(step.product)
        start, end = scale.place(before), scale.place(now)
        kind = "same" if now == before else "zero" if now == 0 else "up" if now > before else "down"
        bars.append(Bar(step, min(start, end), abs(end - start), kind, step.product < 0))
        before = now
    return bars


def equation(rule: AlgorithmSpec, row: Contribution) -> str:
    """The equation of a weight with its numbers; empty without an s."""
    return rule.equation(_weighted(row))
