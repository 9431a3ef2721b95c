"""Which prompts a learner's peer rescued and which mistakes of a peer it avoided; docs/metrics.md defines them."""

from __future__ import annotations

from django.db.models import Q

OF_STEP = Q(age__isnull=True)  # sampled in this step, not replayed
TAUGHT = Q(weight__gt=0) | Q(weight__lt=0)  # the gradient is not zero
Rewards = tuple[float, float]  # the lowest and the highest of an agent's own rollouts to one prompt


def is_rescued(learner: Rewards, source: Rewards) -> bool:
    """All of the learner's rollouts are incorrect, and one of the source's is correct."""
    return learner[1] <= 0 < source[1]


def is_avoided(learner: Rewards, source: Rewards) -> bool:
    """All of the learner's rollouts are correct, and one of the source's is incorrect."""
    return source[0] <= 0 < learner[0]
