"""Capabilities, ratios, baselines and advantages of recorded rewards, without torch.

Eqs. (6) to (9) in double precision, rounded to float32 at the end, so that What-if can apply other windows and clamps
to recorded rewards. tests/workers/contract/test_advantages.py compares them with the tensors of
workers/algorithms/hacpo.py.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import sub, truediv

from workers.algorithms.base.contribution import float32
from workers.algorithms.base.spec import CAPABILITY_FLOOR, CapabilityOptions

REWARD_MAX = 1.0  # the verifier's upper bound: a reward of a correct answer; graded rewards lie between 0 and it
EPSILON = 1e-6


@dataclass(frozen=True)
class OverlongPenalty:
    """What training adds to the reward of a long answer: DAPO, arXiv 2503.14476, Eq. (13).

    limit: max_completion_length.  cache: the tokens before it over which the penalty grows; 0: no penalty.
    strips_eos: contributions count an answer without its EOS.
    """

    limit: int
    cache: int
    strips_eos: bool = False

    def of(self, num_tokens: int) -> float:
        """0 up to limit - cache tokens of the source, EOS included; then it falls linearly, to -1 at the limit."""
        return min(max((self.limit - self.cache - num_tokens) / self.cache, -1.0), 0.0) if self.cache else 0.0

    def of_contribution(self, source_num_tokens: int) -> float:
        """The same reward for a recorded contribution. An answer of `limit` tokens was cut, so it has no EOS."""
        return self.of(min(source_num_tokens + self.strips_eos, self.limit))


def capability(means: Sequence[float], window: int) -> float:
    """P, Eq. (9), from an agent's mean rewards by step, the newest last; the floor if there are none."""
    recent = means[-window:]
    return max(sum(recent) / len(recent) if recent else 0.0, CAPABILITY_FLOOR)


def capability_ratio(source: float, learner: float, options: CapabilityOptions) -> float:
    """Omega, Eq. (8), clamped."""
    return min(max(source / learner, options.ratio_min), options.ratio_max)


@dataclass(frozen=True)
class RewardGroup:
    """The scorable rewards of one prompt by source; a source without any is left out."""

    rewards: Mapping[int, Sequence[float]]

    def values(self, sources: Sequence[int]) -> list[float]:
        return [reward for source in sources for reward in self.rewards.get(source, ())]

    @cached_property
    def totals(self) -> dict[int, tuple[float, int, float, float]]:
        """Sum, count, lowest and highest reward of each source."""
        return {j: (sum(values), len(values), min(values), max(values)) for j, values in self.rewards.items()}


def spread(values: Sequence[float]) -> float:
    """Standard deviation with ddof 1; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def baseline(group: RewardGroup, sources: Sequence[int], learner: int, omega: Mapping[int, float]) -> float:
    """mu of one learner, Eq. (7), with its two exceptions. omega: by source in the baseline, in float32."""
    terms = [(omega[source], *group.totals[source]) for source in sources if source in group.totals]
    if not terms:
        return 0.0
    lowest, highest = min(one[3] for one in terms), max(one[4] for one in terms)
    if lowest == highest:
        return lowest
    count = sum(one[2] for one in terms)
    mu = float32(sum(factor * total for factor, total, *_ in terms) / count)
    if abs(mu) <= REWARD_MAX:  # below -1 only with the overlong penalty
        return mu
    own, own_count, *_ = group.totals.get(learner) or (sum(one[1] for one in terms), count)
    return float32(own / own_count)


def divisor(values: Sequence[float], mode: str) -> float:
    """The divisor of deviations from the baseline. mode: scale_rewards; values: of the prompt or the batch."""
    return 1.0 if mode == "none" else float32(float32(spread(values)) + EPSILON)


def advantages(rewards: Sequence[float], baselines: Sequence[float], divisors: Sequence[float]) -> list[float]:
    """A of each rollout, Eq. (6), from its reward and the baseline and divisor of its prompt."""
    deviations = array("f", map(sub, rewards, baselines))
    return array("f", map(truediv, deviations, divisors)).tolist()
