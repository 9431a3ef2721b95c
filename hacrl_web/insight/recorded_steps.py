"""What a run recorded of its rollouts, by step: which attempt counts, and where its rows lie.

The latest attempt of a step wins. An attempt makes steps in order, so its rows of a run are one range of steps; where
attempts overlap, the later one has the step.
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
    """The least of a column's values, or with `-column` the greatest: one look into the index, None of no rows.

    An aggregate of both ends, or of one where the index is left to the planner, would look at every row.
    """
    return rows.order_by(column).values_list(column.lstrip("-"), flat=True).first()


def segments(rows: QuerySet[Any], first: int | None = None, last: int | None = None) -> list[Segment]:
    """Segments of the steps from `first` to `last`, in the order of the steps. rows: of one run and one table."""
    laid: list[Segment] = []
    highest = end(rows, "-attempt")
    if highest is None:
        return []
    for attempt in range(highest, end(rows, "attempt") - 1, -1):
        of_attempt = rows.filter(attempt=attempt)
        low = end(of_attempt, "step")
        if low is not None:
            laid = _laid_under(laid, Segment(attempt, low, end(of_attempt, "-step")))
    least, most = first or 0, 2**31 if last is None else last
    cut = [Segment(one.attempt, max(one.first, least), min(one.last, most)) for one in laid]
    return [one for one in cut if one.first <= one.last]


def _laid_under(later: list[Segment], earlier: Segment) -> list[Segment]:
    """The later attempts' segments, and what they leave of an earlier one, in order."""
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
    """Recorded steps of these segments whose rows are about `most_rows` at most, evenly spread if that is not all.

    Returns the steps, the last one always among them, and whether others lie between.
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
