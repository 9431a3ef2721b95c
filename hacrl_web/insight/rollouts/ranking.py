"""Rollouts in the order of what they taught: by weight, by surprise or by reward gap, the largest first.

The order is exact within the steps that it covers: those that were asked for or, of more rows than a limit, the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Avg, Case, F, FloatField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Abs

from hacrl_web.insight.recorded_steps import Segment
from hacrl_web.insight.rescued_prompts import OF_STEP
from hacrl_web.runs.models import Contribution

ROWS_SORTED = 40_000
GAPS_SORTED = 8_000  # a gap needs the learner's other rollouts to the prompt
TEXTS_SORTED = 4_000

# The distance of ln s from 0: the larger of s and 1/s.
_SURPRISE = Case(
    When(sequence_ratio__gte=1, then=F("sequence_ratio")),
    When(sequence_ratio__gt=0, then=Value(1.0) / F("sequence_ratio")),
    When(sequence_ratio=0, then=Value(1e300)),
    output_field=FloatField(),
)


def _reward_gap() -> Combinable:
    """The reward against the mean reward of the learner's own rollouts to the prompt in the step."""
    place = {name: OuterRef(name) for name in ("run_id", "attempt", "step", "agent", "prompt_id")}
    own = Contribution.objects.filter(OF_STEP, source=OuterRef("agent"), **place).order_by()
    return Abs(F("reward") - Subquery(own.values("agent").annotate(mean=Avg("reward")).values("mean")))


def sort_value(sort: str) -> Combinable:
    """The number by which contributions are sorted; null for a row that has none."""
    return {"weight": Abs("weight"), "surprise": _SURPRISE, "gap": _reward_gap()}[sort]


def limit_of(sort: str, *, has_text: bool) -> int:
    """The most rows that a sort may read."""
    return TEXTS_SORTED if has_text else GAPS_SORTED if sort == "gap" else ROWS_SORTED


def newest_rows(rows: QuerySet[Any], parts: Sequence[Segment], most: int) -> tuple[Q, int]:
    """The rows of the newest whole steps that have at most `most` rows, at least of one step; and the first of them."""
    condition, first_step = Q(pk__in=[]), parts[-1].last + 1
    for one in reversed(parts):
        of_attempt = rows.filter(attempt=one.attempt, step__range=(one.first, one.last))
        steps = of_attempt.order_by("-step", "-seq").values_list("step", flat=True)
        beyond = next(iter(steps[most : most + 1]), None)
        first = one.first if beyond is None else beyond + 1  # the step of the first row beyond the limit is not whole
        if one is parts[-1]:
            first = min(first, one.last)
        if first <= one.last:
            condition |= Q(attempt=one.attempt, step__range=(first, one.last))
            first_step = first
        if beyond is not None:
            break
        most -= of_attempt.count()
    return condition, first_step
