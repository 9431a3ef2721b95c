"""What tables of runs show beside a run's own columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.scores import curves
from workers.contract.spec.teaching import LONG_WITHOUT_WEIGHT

SPARK_WIDTH, SPARK_HEIGHT = 64, 24  # of the SVG that holds a sparkline


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


def learned_nothing(run: Run) -> str:
    """Which agents have learned nothing for many steps, or by the end of the run; empty if none."""
    parts = []
    for name, count in (run.progress.get("steps_without_weight") or {}).items():
        in_all = count >= run.step - run.start_step
        if count >= LONG_WITHOUT_WEIGHT or (in_all and count and run.is_terminal):
            steps = f"any of {count:,} steps" if in_all else f"the last {count:,} steps"
            parts.append(f"{name}: no rollout had weight in {steps}, so it has learned nothing from them.")
    return " ".join(parts)


def polyline_points(points: Sequence[tuple[int, float]]) -> str:
    """Points of an SVG polyline of the whole scale from 0 to 1; empty before the second evaluation."""
    if len(points) < 2:
        return ""
    first, last = points[0][0], points[-1][0]
    width, height = SPARK_WIDTH - 2, SPARK_HEIGHT - 2
    places = ((1 + width * (step - first) / (last - first), 1 + height * (1 - value)) for step, value in points)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
