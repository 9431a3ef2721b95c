"""What tables of runs show beside a run's own columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.scores import curves
from hacrl_web.web.sparkline import polyline_points


def with_results(runs: Sequence[Run], now: datetime) -> Sequence[Run]:
    """The runs with `start` and `sparkline` of their mean held-out accuracy, and `took_s`: how long they have trained.

    Two queries at most for all of them.
    """
    by_run = curves(runs)
    for run in runs:
        curve = by_run.get(run.pk, [])
        run.start = curve[0][1] if len(curve) > 1 else None
        run.sparkline = polyline_points(curve)
        run.took_s = ((run.finished_at or now) - run.started_at).total_seconds() if run.started_at else None
    return runs
