"""Which prompts a learner's peer rescued and which mistakes of a peer it avoided; docs/metrics.md defines them.

An answer is correct if it has the highest possible reward; one with partial credit is not.
"""

from __future__ import annotations

from django.db.models import Q

from workers.contract.advantages import REWARD_MAX

OF_STEP = Q(age__isnull=True)  # not replayed in another step, as runs of earlier versions may have it
CORRECT = Q(reward__gte=REWARD_MAX)
NOT_CORRECT = Q(reward__lt=REWARD_MAX)
TAUGHT = Q(weight__gt=0) | Q(weight__lt=0)  # the gradient is not zero
Rewards = tuple[float, float]  # the lowest and the highest of an agent's own rollouts to one prompt


def is_rescued(learner: Rewards, source: Rewards) -> bool:
    """All of the learner's rollouts are incorrect, and one of the source's is correct."""
    return learner[1] < REWARD_MAX <= source[1]


def is_avoided(learner: Rewards, source: Rewards) -> bool:
    """All of the learner's rollouts are correct, and one of the source's is incorrect."""
    return source[0] < REWARD_MAX <= learner[0]
