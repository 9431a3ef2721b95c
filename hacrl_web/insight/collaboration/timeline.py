"""The metrics of ordered pairs over a run's steps, in at most COLUMNS columns: omega, alignment, clip shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hacrl_web.insight.downsample import downsample, width_for
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.metric_series import Key, MetricSeries, read_series
from workers.contract.spec.run import RunSpec

COLUMNS = 120
SIDES = ("lower", "upper")
SIGNS = ("positive", "negative")
CLIPS = [f"clip_{side}_frac/{sign}" for side in SIDES for sign in SIGNS]
OF_PAIRS = ("omega", "omega_clamped", "gradient_alignment", "quarantined", *CLIPS)

SeriesByKey = dict[Key, MetricSeries]


def timeline(run: Run, spec: RunSpec) -> dict[str, Any]:
    """Columns of equally many steps, and by ordered pair what they hold; places in `columns` are a step's bucket."""
    lines: SeriesByKey = {one.key: one for one in read_series(run, {*OF_PAIRS, "capability"})}
    names = [agent.name for agent in spec.agents]
    steps_of_lines = [line.steps for line in lines.values() if line.source or line.metric == "capability"]
    first = min((steps[0] for steps in steps_of_lines), default=0)
    last = max((steps[-1] for steps in steps_of_lines), default=-1)
    width = width_for(first, last, COLUMNS) if last >= first else 1
    shares = spec.algorithm.shares_rollouts and len(names) > 1
    return {
        "first": first,
        "last": last,
        "width": width,
        "capability": [_line(lines.get(("capability", name, "")), width) for name in names],
        "pairs": [
            {"learner": learner, "source": source, **_pair(lines, names[learner], names[source], width)}
            for learner in range(len(names))
            for source in range(len(names))
            if shares and learner != source
        ],
    }


def _pair(lines: SeriesByKey, learner: str, source: str, width: int) -> dict[str, Any]:
    def of(metric: str) -> dict[str, Any] | None:
        return _line(lines.get((metric, learner, source)), width)

    return {
        "omega": of("omega"),
        "clamped": _where(lines.get(("omega_clamped", learner, source)), width),
        "quarantined": _where(lines.get(("quarantined", learner, source)), width),
        "alignment": of("gradient_alignment"),
        "clips": {name: of(name) for name in CLIPS},
    }


def _line(line: MetricSeries | None, width: int) -> dict[str, Any] | None:
    """Lowest, highest and last value of each bucket; without the first two if no bucket hides a value."""
    if line is None:
        return None
    buckets = downsample(line.steps, line.values, width)
    if not buckets.steps:
        return None
    body: dict[str, Any] = {"steps": buckets.steps, "last": _short(buckets.last)}
    return body if buckets.is_exact else body | {"low": _short(buckets.low), "high": _short(buckets.high)}


def _short(values: Sequence[float]) -> list[float]:
    """Six significant digits: no picture shows more."""
    return [float(f"{value:.6g}") for value in values]


def _where(line: MetricSeries | None, width: int) -> list[int]:
    """The buckets, step // width, in which a flag was raised at least once."""
    return sorted({step // width for step, value in line.points() if value}) if line else []
