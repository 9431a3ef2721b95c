"""The contract, part four: capabilities, ratios, baselines and advantages of recorded rewards, without torch.

Eqs. (6) to (9) as workers/algorithms/hacpo.py and workers/rules.py have them, in double precision and rounded to
float32 at the end, for whoever asks what other windows and clamps would have made of the same rewards.
tests/workers/test_advantages.py holds this against them. No torch, no Django.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.spec_algorithm import AlgorithmSpec
from workers.weights import single

CAPABILITY_FLOOR = 1e-8
REWARD_MAX = 1.0  # the verifier's upper bound
EPSILON = 1e-6


def capability(means: Sequence[float], window: int) -> float:
    """P, Eq. (9), of an agent's mean rewards by step, the last one now; the floor where it has none."""
    recent = means[-window:]
    return max(sum(recent) / len(recent) if recent else 0.0, CAPABILITY_FLOOR)


def capability_ratio(source: float, learner: float, rule: AlgorithmSpec) -> float:
    """Omega, Eq. (8), clamped."""
    return min(max(source / learner, rule.ratio_min), rule.ratio_max)


@dataclass(frozen=True)
class Group:
    """The rewards of one prompt by source, without the unscorable ones; a source without any is left out."""

    rewards: Mapping[int, Sequence[float]]

    def values(self, heard: Sequence[int]) -> list[float]:
        return [reward for source in heard for reward in self.rewards.get(source, ())]


def spread(values: Sequence[float]) -> float:
    """Standard deviation with ddof 1; 0 of fewer than two."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def baseline(group: Group, heard: Sequence[int], learner: int, omega: Mapping[int, float]) -> float:
    """mu of one learner, Eq. (7), with its two exceptions. omega: omega(learner, source) by source, of those heard."""
    values = group.values(heard)
    if not values:
        return 0.0
    if max(values) == min(values):
        return values[0]
    total = sum(single(omega[source]) * sum(group.rewards.get(source, ())) for source in heard)
    mu = single(total / len(values))
    if mu <= REWARD_MAX:
        return mu
    own = group.rewards.get(learner) or values
    return single(sum(own) / len(own))


def divisor(values: Sequence[float], mode: str) -> float:
    """What deviations from the baseline are divided by. mode: scale_rewards; values: of the prompt, or of the batch."""
    return 1.0 if mode == "none" else single(single(spread(values)) + EPSILON)


def advantage(reward: float, mu: float, by: float) -> float:
    """A, Eq. (6)."""
    return single(single(reward - mu) / by)
