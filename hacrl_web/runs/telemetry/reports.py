"""What run pages and the API read: what a step taught, and the plotted numbers."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan, nan

from django.db.models import Max, QuerySet

from hacrl_web.runs.models import Contribution, Run
from hacrl_web.runs.telemetry.chunks import columns


def contributions_of_step(run: Run, step: int) -> QuerySet[Contribution]:
    """What each rollout of a step taught each learner, in the latest attempt that made the step."""
    rows = run.contributions.filter(step=step)
    return rows.filter(attempt=rows.aggregate(Max("attempt"))["attempt__max"] or 0)


def metric_rows(run: Run) -> Iterator[tuple[int | None, str, str, str, float | None]]:
    """(step, agent, source, metric, value) of every metric and evaluation; the highest attempt of a step wins."""
    rows = columns(run)
    lines = [(key, iter(zip(column.steps, column.values, strict=True))) for key, column in rows.items()]
    waiting = [next(line) for _, line in lines]
    for step in sorted({step for column in rows.values() for step in column.steps}):
        for number, ((metric, agent, source), line) in enumerate(lines):
            while waiting[number][0] == step:
                value = waiting[number][1]
                yield step, agent, source, metric, None if isnan(value) else value
                waiting[number] = next(line, (-1, nan))
