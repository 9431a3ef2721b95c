"""What a run recorded of its rollouts, by step: which attempt counts, and where its rows lie.

The latest attempt of a step wins. An attempt makes steps in order, so its rows of a run are one range of steps; where
attempts overlap, the later one has the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Max, Min, QuerySet


@dataclass(frozen=True)
class Segment:
    """Steps whose rows are those of one attempt, both ends included."""

    attempt: int
    first: int
    last: int


def segments(rows: QuerySet[Any], first: int | None = None, last: int | None = None) -> list[Segment]:
    """Segments of the steps from `first` to `last`, in the order of the steps. rows: of one run and one table."""
    found: list[Segment] = []
    attempts = rows.order_by().aggregate(low=Min("attempt"), high=Max("attempt"))
    if attempts["high"] is None:
        return []
    for attempt in range(attempts["high"], attempts["low"] - 1, -1):
        ends = rows.order_by().filter(attempt=attempt).aggregate(low=Min("step"), high=Max("step"))
        if ends["low"] is not None:
            found = _laid_under(found, Segment(attempt, ends["low"], ends["high"]))
    low, high = first or 0, 2**31 if last is None else last
    cut = [Segment(one.attempt, max(one.first, low), min(one.last, high)) for one in found]
    return [one for one in cut if one.first <= one.last]


def _laid_under(later: list[Segment], earlier: Segment) -> list[Segment]:
    """The later attempts' segments, and what they leave of an earlier one, in order."""
    rest, left = [], earlier.first
    for one in later:
        if one.first > left:
            rest.append(Segment(earlier.attempt, left, min(earlier.last, one.first - 1)))
        left = max(left, one.last + 1)
    if left <= earlier.last:
        rest.append(Segment(earlier.attempt, left, earlier.last))
    return sorted([*later, *(one for one in rest if one.first <= one.last)], key=lambda one: one.first)


def step_before(rows: QuerySet[Any], step: int) -> int | None:
    """The nearest earlier step with rows."""
    found: int | None = rows.order_by().filter(step__lt=step).aggregate(found=Max("step"))["found"]
    return found


def step_after(rows: QuerySet[Any], step: int) -> int | None:
    """The nearest later step with rows."""
    found: int | None = rows.order_by().filter(step__gt=step).aggregate(found=Min("step"))["found"]
    return found
