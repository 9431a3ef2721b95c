"""What charts draw: the numbers of a run (the CSV's too) as columns by metric, agent and source."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.chunks import columns


def series(
    run: Run,
    names: Collection[str] = (),
    agents: Collection[str] = (),
    first: int | None = None,
    last: int | None = None,
) -> list[dict[str, Any]]:
    """Columns {metric, agent, source, steps, values}, steps ascending; empty choices mean all.

    first, last: only the steps from `first` to `last`.
    """
    return [
        {
            "metric": metric,
            "agent": agent,
            "source": source,
            "steps": column.steps.tolist(),
            "values": column.numbers(),
        }
        for (metric, agent, source), column in columns(run, names, agents, first, last).items()
    ]
