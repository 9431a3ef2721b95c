"""Part of the contract: the weight of one rollout in a learner's update, in the trainer's arithmetic, without torch.

The losses of workers/algorithms use float32 tensors; here plain numbers are rounded to float32 after each operation, so
that a page can explain a recorded weight, or compute it for other settings.
tests/workers/contract/test_contribution_weight.py compares both. No torch, no Django.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import mul
from typing import NamedTuple

from workers.contract.spec.algorithm import AlgorithmSpec

# A log ratio this close to `max_log_ratio` was clamped: two roundings of float32.
_NEAR = 3e-7


def single(value: float) -> float:
    """The float32 nearest to a number."""
    return array("f", (value,))[0]


def _rounded(values: Iterable[float]) -> array[float]:
    return array("f", values)


def clip_lower_bound(mini_batch: int, rule: AlgorithmSpec) -> float:
    """The lower bound of shared ratios at update m of a step, Eq. (14); `rule` is RunSpec.rule."""
    return min(1.0, 1.0 - rule.delta + mini_batch * rule.delta_step)


def is_cross(rule: AlgorithmSpec, is_own: bool) -> bool:
    """Whether HACPO's cross term applies to a row; all other rows are weighted as own rollouts."""
    return rule.name == "hacpo" and not is_own


def clip_band(rule: AlgorithmSpec, is_own: bool, mini_batch: int) -> tuple[float, float]:
    """The float32 bounds that a row's sequence ratio is clipped to."""
    if rule.epsilon is None or rule.epsilon_high is None:
        raise ValueError("epsilon is empty: pass RunSpec.rule, in which every number is filled in")
    if not is_cross(rule, is_own):
        return single(1 - rule.epsilon), single(1 + rule.epsilon_high)
    if not rule.clip_cross:
        return 0.0, math.inf
    return single(clip_lower_bound(mini_batch, rule)), 1.0


class RowWeights(NamedTuple):
    """By row: -1 below, 0 inside, 1 above the band; and the weight, 0 where no gradient flows."""

    sides: list[int]
    weights: list[float]


def weigh(
    rule: AlgorithmSpec,
    is_own: bool,
    mini_batch: int,
    ratios: Sequence[float],
    advantages: Sequence[float],
    omega: float = 1.0,
) -> RowWeights:
    """Weights of one source's rows in one update of a learner. Not for GRPO, whose ratio is per token.

    ratios: s before clipping, float32 numbers, as recorded.  advantages: A, float32 numbers.  omega: of Eq. (8).
    """
    low, high = clip_band(rule, is_own, mini_batch)
    sides = [(s > high) - (s < low) for s in ratios]
    clipped = [low if s < low else high if s > high else s for s in ratios]
    if is_cross(rule, is_own):
        weights: Sequence[float] = _coefficients(clipped, advantages, omega, rule)
        flows: Iterable[bool] = _flows(sides, advantages, rule.cross_clip_gradient)
    else:
        weights = _rounded(map(mul, ratios, advantages))
        flows = map(float.__le__, weights, _rounded(map(mul, clipped, advantages)))  # min(s A, c A) is s A
    # Outside exp(+-max_log_ratio) the log ratio was clamped, which passes no gradient.
    top = math.exp(rule.max_log_ratio) * (1 - _NEAR)
    bottom = math.exp(-rule.max_log_ratio) * (1 + _NEAR)
    if ratios and (max(ratios) >= top or min(ratios) <= bottom):
        flows = [is_free and bottom < s < top for s, is_free in zip(ratios, flows, strict=True)]
    return RowWeights(sides, [weight if is_free else 0.0 for weight, is_free in zip(weights, flows, strict=True)])


def _coefficients(
    clipped: Sequence[float], advantages: Sequence[float], omega: float, rule: AlgorithmSpec
) -> array[float]:
    """c^(1 + alpha) * omega * A * cross_weight, Eqs. (10) and (12), in the order in which the loss multiplies."""
    weights = _rounded(map(mul, _power(clipped, 1 + rule.alpha), repeat(single(omega))))
    weights = _rounded(map(mul, weights, advantages))
    return weights if rule.cross_weight == 1 else _rounded(map(mul, weights, repeat(single(rule.cross_weight))))


def _power(values: Sequence[float], exponent: float) -> Sequence[float]:
    """Powers as torch computes them: products for exponents 1, 2 and 3; of other powers the last bit may differ."""
    if exponent == 1:
        return values
    if exponent == 2:
        return _rounded(map(mul, values, values))
    if exponent == 3:
        return _rounded(map(mul, _rounded(map(mul, values, values)), values))
    return _rounded(map(pow, values, repeat(single(exponent))))


def _flows(sides: Sequence[int], advantages: Sequence[float], mode: str) -> Iterable[bool]:
    """Which rows pass a gradient. mode: cross_clip_gradient."""
    if mode == "zero":
        return [side == 0 for side in sides]
    if mode == "keep":
        return repeat(True, len(sides))
    return [side == 0 or side * a < 0 for side, a in zip(sides, advantages, strict=True)]


@dataclass(frozen=True)
class Factor:
    """One step from s to the weight: its factor, and the product so far."""

    name: str
    symbol: str
    value: float
    product: float
    why: str


@dataclass(frozen=True)
class WeightedRow:
    """The fields of a contribution on which its weight depends."""

    is_own: bool
    mini_batch: int | None
    sequence_ratio: float | None
    advantage: float
    omega: float
    weight: float


def factors(rule: AlgorithmSpec, row: WeightedRow) -> list[Factor]:
    """The steps from s to the weight of a row, whose product it is. Empty if the row has no s."""
    if row.sequence_ratio is None or row.mini_batch is None:
        return []
    if rule.name == "grpo":
        steps = _token_steps(row)
    elif is_cross(rule, row.is_own):
        steps = _cross_steps(rule, row)
    else:
        steps = _own_steps(rule, row)
    result, product = [], 1.0
    for name, symbol, value, why in steps:
        product *= value
        result.append(Factor(name, symbol, value, product, why))
    return result


Step = tuple[str, str, float, str]


def _cross_steps(rule: AlgorithmSpec, row: WeightedRow) -> Iterator[Step]:
    """Eqs. (10), (12), (14) and (50)."""
    s, m = row.sequence_ratio or 0.0, row.mini_batch or 0
    low, high = clip_band(rule, False, m)
    clipped = min(max(s, low), high)
    (side,), (weight,) = weigh(rule, False, m, [s], [row.advantage], row.omega)
    where = "inside the band" if not side else "below the band" if side < 0 else "above the band"
    bounds = f"[{low:.4g}, {high:.4g}]: 1 - delta + m * delta_step with m = {m}" if rule.clip_cross else "no clip"
    yield "sequence ratio", "s", s, "the learner's probability of the text over the source's, per token; Eq. (11)"
    yield "clip", "c / s", clipped / s if s else 0.0, f"{where} {bounds}"
    yield "exponent", "c^α", clipped**rule.alpha, f"alpha = {rule.alpha:g}; Eq. (12)"
    yield "capability ratio", "ω", row.omega, "of the source to the learner; Eq. (8)"
    yield "advantage", "A", row.advantage, "the reward against the learner's baseline; Eq. (6)"
    yield "cross weight", "cross_weight", rule.cross_weight, "the same for all shared rollouts"
    if row.advantage == 0:
        reason = "A is 0: there is nothing to teach"
    elif weight:
        reason = "the gradient flows"
    elif side:
        reason = f"{where}: no gradient (cross_clip_gradient {rule.cross_clip_gradient})"
    else:
        reason = "the log ratio was clamped to max_log_ratio: no gradient"
    yield "gradient", "1[flows]", float(weight != 0), reason


def _own_steps(rule: AlgorithmSpec, row: WeightedRow) -> Iterator[Step]:
    """Eq. (47): min(s A, c A). Only the first branch has a gradient."""
    s, m = row.sequence_ratio or 0.0, row.mini_batch or 0
    low, high = clip_band(rule, True, m)
    clipped = min(max(s, low), high)
    _, (weight,) = weigh(rule, True, m, [s], [row.advantage])
    branches = f"min(s A, c A) = min({s * row.advantage:.4g}, {clipped * row.advantage:.4g})"
    yield "sequence ratio", "s", s, "the learner's probability now over that at the start; Eq. (11)"
    yield "advantage", "A", row.advantage, "the reward against the learner's baseline; Eq. (6)"
    if row.advantage == 0:
        reason = "A is 0: there is nothing to teach"
    else:
        branch = "s A: the gradient flows" if weight else "c A, which has no gradient"
        reason = f"{branches} takes {branch}; c = s clipped to [{low:.6g}, {high:.6g}]"
    yield "gradient", "1[s A is taken]", float(weight != 0), reason


def _token_steps(row: WeightedRow) -> Iterator[Step]:
    """GRPO clips each token: its factor is a mean over tokens, recorded as the product with A."""
    factor = row.weight / row.advantage if row.advantage else 0.0
    why = "mean over tokens of the ratio where the unclipped branch is taken; recorded as weight / A"
    yield "tokens", "mean r_t", factor, why
    yield "advantage", "A", row.advantage, "the reward against the learner's baseline; Eq. (6)"
