"""What the Overview tab draws, in one answer: the chosen lines in buckets, their places on the x axis, seed bands.

The answer names the `seq` that it is at least as new as: a page subscribes its socket from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

from hacrl_web.insight.downsample import MAX_POINTS, Buckets, bucketed, width_for
from hacrl_web.insight.overview.seed_bands import Kind, same_but_seed, seed_band
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.series import series

# All lines of an answer share a budget: some megabytes of JSON, whatever the number of agents.
BUDGET = 60_000
LEAST_POINTS = 256
STEPS_AT_ONCE = 5000
XAxis = Literal["step", "rollouts", "tokens", "elapsed"]
_FIELD = {"rollouts": "rollouts_generated", "tokens": "tokens_generated", "elapsed": "elapsed_s"}
Line = tuple[str, str, str]  # metric, agent, source


def overview(
    run: Run,
    metrics: Collection[str],
    *,
    points: int = MAX_POINTS,
    first: int | None = None,
    last: int | None = None,
    x: XAxis = "step",
    over_seeds: Kind | None = None,
) -> dict[str, Any]:
    """The lines of these metrics from step `first` to `last`, at most `points` points each."""
    seq = run.last_seq  # before the rows are read: what comes in meanwhile may be told twice, but is never missed
    columns = series(run, set(metrics), first=first, last=last)
    steps = [step for column in columns for step in (column["steps"][0], column["steps"][-1])]
    start = first if first is not None else min(steps, default=0)
    end = last if last is not None else max(steps, default=0)
    width = width_for(start, end, _share(points, len(columns)))
    lines = _bucketed(columns, width)
    answer = {"run": str(run.pk), "seq": seq, "first": start, "last": end, "width": width}
    bands = _bands(run, lines, metrics, (start, end, width), over_seeds) if over_seeds else {}
    grids = _Grids()
    answer["lines"] = [_as_dict(key, line, grids) for key, line in lines.items()]
    answer["bands"] = [
        _as_dict(key, line, grids) | {"seeds": seeds} for key, (line, seeds) in bands.items() if line.steps
    ]
    answer["grids"] = grids.all
    if x != "step":
        drawn = sorted({step for grid in grids.all for step in grid})
        answer["x"] = {"steps": drawn, "values": positions(run, drawn, x)}
    return answer


def _share(points: int, num_lines: int) -> int:
    return max(1, min(points, max(LEAST_POINTS, BUDGET // max(1, num_lines))))


def _bucketed(columns: Iterable[dict[str, Any]], width: int) -> dict[Line, Buckets]:
    return {(c["metric"], c["agent"], c["source"]): bucketed(c["steps"], c["values"], width) for c in columns}


def _bands(
    run: Run, own: dict[Line, Buckets], metrics: Collection[str], region: tuple[int, int, int], kind: Kind
) -> dict[Line, tuple[Buckets, list[int]]]:
    """A band for each line of the run, and the seeds that it is over: those whose line has a point."""
    start, end, width = region
    every = {
        one.seed: own if one.pk == run.pk else _bucketed(series(one, set(metrics), first=start, last=end), width)
        for one in same_but_seed(run)
    }
    bands = {}
    for key in own:
        by_seed = {seed: lines[key] for seed, lines in every.items() if key in lines and lines[key].steps}
        bands[key] = (seed_band(list(by_seed.values()), width, kind), list(by_seed))
    return bands


class _Grids:
    """Lists of steps, each told once: most lines have the same."""

    def __init__(self) -> None:
        self.all: list[list[int]] = []
        self._places: dict[tuple[int, ...], int] = {}

    def place(self, steps: list[int]) -> int:
        key = tuple(steps)
        if key not in self._places:
            self._places[key] = len(self.all)
            self.all.append(steps)
        return self._places[key]


def _as_dict(key: Line, line: Buckets, grids: _Grids) -> dict[str, Any]:
    metric, agent, source = key
    body = {"metric": metric, "agent": agent, "source": source, "grid": grids.place(line.steps), "last": line.last}
    return body if line.is_exact else body | {"low": line.low, "high": line.high}


def positions(run: Run, steps: list[int], x: XAxis) -> list[float | None]:
    """Where steps lie on another axis, by the `progress` event at their end: the highest attempt's, as for every point.

    Step 0 lies at 0; a step without such an event has no place.
    """
    by_step: dict[int, float | None] = {0: 0}
    # agent and source are empty in these events; naming them lets the index find the steps.
    events = run.events.filter(type="progress", agent="", source="")
    for start in range(0, len(steps), STEPS_AT_ONCE):
        some = events.filter(step__in=steps[start : start + STEPS_AT_ONCE]).order_by("attempt", "seq")
        by_step |= {step: payload.get(_FIELD[x]) for step, payload in some.values_list("step", "payload")}
    return [by_step.get(step) for step in steps]
