"""The recorded steps of a run: for each step, the attempt whose rows count.

An attempt makes steps in order, so its rows are one range of steps; if ranges overlap, the latest attempt counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet


@dataclass(frozen=True)
class Segment:
    """Steps whose rows are those of one attempt, both ends included."""

    attempt: int
    first: int
    last: int


def end(rows: QuerySet[Any], column: str) -> Any:
    """The lowest value of a column, or with `-column` the highest; None without rows.

    By order, for which the index serves: an aggregate would read every row if the planner chooses no index.
    """
    return rows.order_by(column).values_list(column.lstrip("-"), flat=True).first()


def segments(rows: QuerySet[Any], first: int | None = None, last: int | None = None) -> list[Segment]:
    """Segments of the steps from `first` to `last`, in the order of the steps. rows: of one run and one table."""
    merged: list[Segment] = []
    highest = end(rows, "-attempt")
    if highest is None:
        return []
    for attempt in range(highest, end(rows, "attempt") - 1, -1):
        of_attempt = rows.filter(attempt=attempt)
        low = end(of_attempt, "step")
        if low is not None:
            merged = _with_earlier(merged, Segment(attempt, low, end(of_attempt, "-step")))
    least, most = first or 0, 2**31 if last is None else last
    cut = [Segment(one.attempt, max(one.first, least), min(one.last, most)) for one in merged]
    return [one for one in cut if one.first <= one.last]


def _with_earlier(later: list[Segment], earlier: Segment) -> list[Segment]:
    """The later attempts' segments, and the parts of an earlier one between them, in order."""
    rest, low = [], earlier.first
    for one in later:
        if one.first > low:
            rest.append(Segment(earlier.attempt, low, min(earlier.last, one.first - 1)))
        low = max(low, one.last + 1)
    if low <= earlier.last:
        rest.append(Segment(earlier.attempt, low, earlier.last))
    return sorted([*later, *(one for one in rest if one.first <= one.last)], key=lambda one: one.first)


def step_before(rows: QuerySet[Any], step: int) -> int | None:
    """The nearest earlier step with rows."""
    nearest: int | None = end(rows.filter(step__lt=step), "-step")
    return nearest


def step_after(rows: QuerySet[Any], step: int) -> int | None:
    """The nearest later step with rows."""
    nearest: int | None = end(rows.filter(step__gt=step), "step")
    return nearest


def spread_steps(rows: QuerySet[Any], parts: list[Segment], most_steps: int, most_rows: int) -> tuple[list[int], bool]:
    """Recorded steps of these segments with about `most_rows` rows at most, evenly spread if those are not all.

    Returns the steps, the last one always among them, and whether others are between them.
    """
    if not parts:
        return [], False
    first, last = parts[0].first, parts[-1].last
    of_last = rows.filter(attempt=parts[-1].attempt, step=last).count()
    most = max(1, min(most_steps, most_rows // max(1, of_last)))
    if last - first < most:
        steps = {step for one in parts for step in _steps(rows, one)}
        return sorted(steps), False
    steps = set()
    for number in range(most):
        target = last - round(number * (last - first) / max(1, most - 1))
        nearest = end(rows.filter(step__range=(first, target)), "-step")
        if nearest is not None:
            steps.add(nearest)
    between = sum(len(_steps(rows, one)) for one in parts) if last - first < 4 * most else None
    return sorted(steps), between != len(steps)


def _steps(rows: QuerySet[Any], one: Segment) -> list[int]:
    of_attempt = rows.filter(attempt=one.attempt, step__range=(one.first, one.last))
    return list(of_attempt.order_by().values_list("step", flat=True).distinct())
