"""What tables of runs show beside a run's own columns, and how they are sorted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from django.db.models import DurationField, ExpressionWrapper, F, OrderBy
from django.db.models.functions import Coalesce, Lower, Now

from hacrl_web.runs.models import Run, RunQuerySet
from hacrl_web.runs.telemetry.scores import curves, polyline_points
from hacrl_web.web.page_query import PageQuery

Sort = Literal[
    "", "name", "-name", "state", "-state", "score", "-score", "duration", "-duration",
    "algorithm", "-algorithm", "seed", "-seed", "created", "-created",
]  # fmt: skip
TOOK = ExpressionWrapper(Coalesce("finished_at", Now()) - F("started_at"), output_field=DurationField())
COLUMNS: dict[str, Any] = {
    "name": Lower("name"),
    "state": F("state"),
    "score": F("score"),
    "duration": TOOK,
    "algorithm": F("algorithm"),
    "seed": F("seed"),
    "created": F("created_at"),
}
# What a first click on a heading asks for: the best, longest or newest first, but names from A on.
DESCENDING_FIRST = ("score", "duration", "created")


def sorted_runs(runs: RunQuerySet, sort: str) -> RunQuerySet:
    """By a column, runs without a value last; newest first among equals, and without a sort."""
    column = COLUMNS.get(sort.removeprefix("-"))
    if column is None:
        return runs
    order = OrderBy(column, descending=sort.startswith("-"), nulls_last=True)
    return runs.order_by(order, "-created_at", "-pk")


def headings(query: PageQuery, sort: str) -> dict[str, dict[str, str]]:
    """Of each column: the query that sorts by it, or turns the order round, and its present order for aria-sort."""
    sorts = {}
    for name in COLUMNS:
        orders = (f"-{name}", name) if name in DESCENDING_FIRST else (name, f"-{name}")
        next_order = orders[1] if sort == orders[0] else orders[0]
        order = {name: "ascending", f"-{name}": "descending"}.get(sort, "")
        sorts[name] = {"query": query.encode(sort=next_order), "order": order}
    return sorts


def with_results(runs: Sequence[Run], now: datetime) -> Sequence[Run]:
    """The runs with `start` and `sparkline` of their mean held-out accuracy, and `took_s`: how long they have trained.

    Two queries for all of them.
    """
    by_run = curves(runs)
    for run in runs:
        curve = by_run.get(run.pk, [])
        run.start = curve[0][1] if len(curve) > 1 else None
        run.sparkline = polyline_points(curve)
        run.took_s = ((run.finished_at or now) - run.started_at).total_seconds() if run.started_at else None
    return runs
