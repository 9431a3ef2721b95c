"""What charts draw: the numbers of `reports.metric_rows` (the CSV's too) as columns by metric, agent and source."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hacrl_web.runs.models import Run
from hacrl_web.runs.reports import metric_rows


def series(
    run: Run,
    names: Collection[str] = (),
    agents: Collection[str] = (),
    first: int | None = None,
    last: int | None = None,
) -> list[dict[str, Any]]:
    """Columns {metric, agent, source, steps, values}, in the order of their first point; empty choices mean all.

    first, last: only the steps from `first` to `last`.
    """
    columns: dict[tuple[str, str, str], dict[str, Any]] = {}
    for step, agent, source, metric, value in metric_rows(run):
        if (names and metric not in names) or (agents and agent not in agents):
            continue
        # A number without a step, which no trainer of ours sends, is on no chart.
        if step is None or (first is not None and step < first) or (last is not None and step > last):
            continue
        key = (metric, agent, source)
        column = columns.get(key)
        if column is None:
            column = {"metric": metric, "agent": agent, "source": source, "steps": [], "values": []}
            columns[key] = column
        column["steps"].append(step)
        column["values"].append(value)
    return list(columns.values())
