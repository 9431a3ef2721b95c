"""The prompts of a step on which a peer rescued a learner, or on which the learner learnt from the peer's mistake.

The counts on the Collaboration tab (summaries.py) are of the same prompts; its sentences lead to their rollouts.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Max, Min, Q, QuerySet

LESSONS = ("rescue", "mistake")
# Which of the source's rollouts on such a prompt the lesson is about.
REWARDS = {"rescue": Q(reward__gt=0), "mistake": Q(reward__lte=0)}


def lesson_prompts(of_step: QuerySet[Any], learner: str, source: str, lesson: str) -> list[str]:
    """Ids of prompts. of_step: contributions of one step and attempt; docs/metrics.md defines rescue and warn."""
    ends: dict[tuple[str, str], tuple[float, float]] = {}
    # Every agent hears all of its own scored rollouts.
    own = of_step.filter(Q(agent=learner, source=learner) | Q(agent=source, source=source), reward__isnull=False)
    for agent, prompt, low, high in (
        own.order_by().values_list("agent", "prompt_id").annotate(low=Min("reward"), high=Max("reward"))
    ):
        ends[agent, prompt] = (low, high)
    prompts = []
    for (agent, prompt), (low, high) in ends.items():
        if agent != learner or (source, prompt) not in ends:
            continue
        least, best = ends[source, prompt]
        if (high <= 0 < best) if lesson == "rescue" else (least <= 0 < low):
            prompts.append(prompt)
    return prompts
