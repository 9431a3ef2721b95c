"""The weight of one rollout in a learner's update, in the trainer's arithmetic, without torch.

The losses use float32 tensors; here plain numbers are rounded to float32 after each operation, so that a page can
explain a recorded weight, or compute it for other settings. tests/workers/algorithms/base/test_contribution.py compares
both.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import mul
from typing import NamedTuple

# A log ratio this close to `max_log_ratio` was clamped: two roundings of float32.
_NEAR = 3e-7

# One step from s to a weight: its name, symbol, factor and reason.
Step = tuple[str, str, float, str]
ADVANTAGE_HELP = "the reward against the learner's baseline; Eq. (6)"
IMPORTANCE_HELP = "the importance weight: the trainer's probability per token over that of the sampling weights, capped"
NOTHING_TO_TEACH = "A is 0: there is nothing to teach"


class RowWeights(NamedTuple):
    """By row: -1 below, 0 inside, 1 above the band; and the weight, 0 where no gradient flows."""

    sides: list[int]
    weights: list[float]


@dataclass(frozen=True)
class WeightedRow:
    """The fields of a contribution on which its weight depends."""

    is_own: bool
    mini_batch: int | None
    sequence_ratio: float | None
    advantage: float
    omega: float
    weight: float
    clipped_ratio: float | None = None
    importance: float = 1.0

    @property
    def scaled_advantage(self) -> float:
        """A times the importance weight: what the loss has in place of A."""
        return single(self.advantage * self.importance)


@dataclass(frozen=True)
class Factor:
    """One step from s to the weight: its factor, and the product so far."""

    name: str
    symbol: str
    value: float
    product: float
    why: str


def factors(steps: Iterable[Step]) -> list[Factor]:
    """The steps from s to a weight, whose product it is."""
    result, product = [], 1.0
    for name, symbol, value, why in steps:
        product *= value
        result.append(Factor(name, symbol, value, product, why))
    return result


def single(value: float) -> float:
    """The float32 nearest to a number."""
    return array("f", (value,))[0]


def singles(values: Iterable[float]) -> array[float]:
    """The float32 nearest to each number."""
    return array("f", values)


def power(values: Sequence[float], exponent: float) -> Sequence[float]:
    """Powers as torch computes them: products for exponents 1, 2 and 3; of other powers the last bit may differ."""
    if exponent == 1:
        return values
    if exponent == 2:
        return singles(map(mul, values, values))
    if exponent == 3:
        return singles(map(mul, singles(map(mul, values, values)), values))
    return singles(map(pow, values, repeat(single(exponent))))


def where_free(weights: Sequence[float], flows: Iterable[bool], ratios: Sequence[float], limit: float) -> list[float]:
    """Each weight, or 0 where no gradient flows: also where the log ratio was clamped. limit: max_log_ratio."""
    top, bottom = math.exp(limit) * (1 - _NEAR), math.exp(-limit) * (1 + _NEAR)
    if ratios and (max(ratios) >= top or min(ratios) <= bottom):
        flows = [is_free and bottom < s < top for s, is_free in zip(ratios, flows, strict=True)]
    return [weight if is_free else 0.0 for weight, is_free in zip(weights, flows, strict=True)]


def own_weights(
    ratios: Sequence[float], advantages: Sequence[float], band: tuple[float, float], limit: float
) -> RowWeights:
    """Eq. (47): s A where it is the minimum of s A and c A. limit: max_log_ratio."""
    low, high = map(single, band)
    sides = [(s > high) - (s < low) for s in ratios]
    clipped = [low if s < low else high if s > high else s for s in ratios]
    weights = singles(map(mul, ratios, advantages))
    flows = map(float.__le__, weights, singles(map(mul, clipped, advantages)))
    return RowWeights(sides, where_free(weights, flows, ratios, limit))


def importance_step(row: WeightedRow) -> Iterator[Step]:
    """The importance weight, where it is not 1."""
    if row.importance != 1:
        yield "importance weight", "w", row.importance, IMPORTANCE_HELP


def own_steps(row: WeightedRow, band: tuple[float, float], is_free: bool) -> Iterator[Step]:
    """Eq. (47): min(s A, c A). Only the first branch has a gradient."""
    s = row.sequence_ratio or 0.0
    low, high = band
    clipped = min(max(s, low), high)
    branches = f"min(s A, c A) = min({s * row.advantage:.4g}, {clipped * row.advantage:.4g})"
    yield "sequence ratio", "s", s, "the learner's probability now over that at the start; Eq. (11)"
    yield "advantage", "A", row.advantage, ADVANTAGE_HELP
    yield from importance_step(row)
    if row.advantage == 0:
        reason = NOTHING_TO_TEACH
    else:
        branch = "s A: the gradient flows" if is_free else "c A, which has no gradient"
        reason = f"{branches} takes {branch}; c = s clipped to [{low:.6g}, {high:.6g}]"
    yield "gradient", "1[s A is taken]", float(is_free), reason
