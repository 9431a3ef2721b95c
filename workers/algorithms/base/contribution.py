"""The weight of one rollout in a learner's update, as factors that a page explains. Without torch."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

# A log ratio this close to `max_log_ratio` was clamped: two roundings of float32.
_NEAR = 3e-7

# One step from s to a weight: its name, symbol, factor and reason.
WeightFactor = tuple[str, str, float, str]
ADVANTAGE_HELP = "the reward against the learner's baseline; Eq. (6)"
IMPORTANCE_HELP = "the importance weight: the trainer's probability per token over that of the sampling weights, capped"
NOTHING_TO_TEACH = "A is 0: there is nothing to teach"


class RowWeights(NamedTuple):
    """The side of each row (-1 below, 0 inside, 1 above the band) and its weight, 0 where no gradient flows."""

    sides: list[int]
    weights: list[float]


@dataclass(frozen=True)
class WeightedRow:
    """The fields of a contribution on which its weight depends."""

    is_own: bool
    update_index: int | None
    sequence_ratio: float | None
    advantage: float
    omega: float
    weight: float
    clipped_ratio: float | None = None
    importance: float = 1.0

    @property
    def scaled_advantage(self) -> float:
        """A times the importance weight: what the loss has in place of A."""
        return float32(self.advantage * self.importance)


@dataclass(frozen=True)
class Factor:
    """One step from s to the weight: its factor, and the product so far."""

    name: str
    symbol: str
    value: float
    product: float
    why: str


def factors(steps: Iterable[WeightFactor]) -> list[Factor]:
    """The steps from s to a weight, whose product it is."""
    result, product = [], 1.0
    for name, symbol, value, why in steps:
        product *= value
        result.append(Factor(name, symbol, value, product, why))
    return result


def float32(value: float) -> float:
    """The float32 nearest to a number."""
    return float(np.float32(value))


def float32_array(values: Iterable[float]) -> array[float]:
    """The float32 nearest to each number."""
    return array("f", values)


def unclamped(ratios: Any, limit: float) -> Any:
    """(b,) bool: True where the log ratio was not clamped. ratios: as recorded.  limit: max_log_ratio."""
    exact = ratios.astype(float)
    return (exact > math.exp(-limit) * (1 + _NEAR)) & (exact < math.exp(limit) * (1 - _NEAR))


def importance_step(row: WeightedRow) -> Iterator[WeightFactor]:
    """The importance weight, where it is not 1."""
    if row.importance != 1:
        yield "importance weight", "w", row.importance, IMPORTANCE_HELP


def own_steps(row: WeightedRow, band: tuple[float, float], is_free: bool) -> Iterator[WeightFactor]:
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
