"""The Overview tab in one answer: the chosen lines in buckets, their places on the x axis, and bands over seeds.

The answer names the `seq` that it is at least as new as: a page subscribes its socket from there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any, Literal

from hacrl_web.insight.downsample import MAX_POINTS, Buckets, downsample, width_for
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.metric_series import Key, MetricSeries, read_series
from hacrl_web.web.statistics import mean_interval

# All lines of an answer share a budget: some megabytes of JSON, whatever the number of agents.
BUDGET = 60_000
LEAST_POINTS = 256
STEPS_AT_ONCE = 5000
MAX_SEEDS = 16
MAX_LINES = 2000
MAX_REPORTS = 500
LINES = ("log", "left_out")
REPORTS = ("started", "evaluation", "checkpoint", "left_out", "finished")
XAxis = Literal["step", "rollouts", "tokens", "elapsed"]
BandKind = Literal["range", "ci"]
_FIELD = {"rollouts": "rollouts_generated", "tokens": "tokens_generated", "elapsed": "elapsed_s"}
_COLUMNS = ("seq", "attempt", "type", "step", "agent", "source", "time", "payload")


def overview(
    run: Run,
    metrics: Collection[str],
    *,
    points: int = MAX_POINTS,
    first: int | None = None,
    last: int | None = None,
    x: XAxis = "step",
    over_seeds: BandKind | None = None,
) -> dict[str, Any]:
    """The lines of these metrics from step `first` to `last`, at most `points` points each."""
    seq = run.last_seq  # before the rows are read: what arrives meanwhile may be sent twice, but is never missed
    series = read_series(run, set(metrics), first=first, last=last)
    if x == "step":  # another axis has no place for the parent's steps
        series = _with_parent(run, series, set(metrics), first, last)
    steps = [step for one in series for step in (one.steps[0], one.steps[-1])]
    start = first if first is not None else min(steps, default=0)
    end = last if last is not None else max(steps, default=0)
    most = max(1, min(points, max(LEAST_POINTS, BUDGET // max(1, len(series)))))
    width = width_for(start, end, most)
    lines = _buckets_by_key(series, width)
    grids = _Grids()
    answer: dict[str, Any] = {"run": str(run.pk), "seq": seq, "first": start, "last": end, "width": width}
    answer["lines"] = [_as_dict(key, line, grids) for key, line in lines.items()]
    answer["bands"] = []
    if over_seeds:
        by_seed = {run.seed: lines}
        for other in same_but_seed(run):
            if other.pk != run.pk:
                by_seed[other.seed] = _buckets_by_key(read_series(other, set(metrics), first=start, last=end), width)
        for key in lines:
            of_seeds = {seed: by_seed[seed][key] for seed in sorted(by_seed) if key in by_seed[seed]}
            of_seeds = {seed: line for seed, line in of_seeds.items() if line.steps}
            band = seed_band(list(of_seeds.values()), width, over_seeds)
            if band.steps:
                answer["bands"].append(_as_dict(key, band, grids) | {"seeds": list(of_seeds)})
    answer["grids"] = grids.all
    if x != "step":
        steps = sorted({step for grid in grids.all for step in grid})
        answer["x"] = {"steps": steps, "values": positions(run, steps, x)}
    return answer


def _with_parent(
    run: Run, series: list[MetricSeries], metrics: set[str], first: int | None, last: int | None
) -> list[MetricSeries]:
    """The lines of a run that continues from a checkpoint, each after its parent's up to that step."""
    parent = run.cloned_from
    if not run.start_step or parent is None:
        return series
    end = run.start_step if last is None else min(last, run.start_step)
    own = {one.key: one for one in series}
    for line in read_series(parent, metrics, first=first, last=end) if (first or 0) <= end else []:
        if (later := own.get(line.key)) is not None:
            start = bisect_right(later.steps, line.steps[-1])  # both may hold the step of the checkpoint
            for step, value in zip(later.steps[start:], later.values[start:], strict=True):
                line.add(step, value)
        own[line.key] = line
    return list(own.values())


def _buckets_by_key(series: Sequence[MetricSeries], width: int) -> dict[Key, Buckets]:
    return {one.key: downsample(one.steps, one.values, width) for one in series}


class _Grids:
    """Lists of steps, each sent once: most lines have the same."""

    def __init__(self) -> None:
        self.all: list[list[int]] = []
        self._places: dict[tuple[int, ...], int] = {}

    def place(self, steps: list[int]) -> int:
        place = self._places.setdefault(tuple(steps), len(self.all))
        if place == len(self.all):
            self.all.append(steps)
        return place


def _as_dict(key: Key, line: Buckets, grids: _Grids) -> dict[str, Any]:
    metric, agent, source = key
    body = {"metric": metric, "agent": agent, "source": source, "grid": grids.place(line.steps), "last": line.last}
    return body if line.is_exact else body | {"low": line.low, "high": line.high}


def positions(run: Run, steps: list[int], x: XAxis) -> list[float | None]:
    """The steps' positions on another axis, by the `progress` events at their ends, of the highest attempt.

    Step 0 has position 0; a step without such an event has none.
    """
    by_step: dict[int, float | None] = {0: 0}
    # agent and source are empty in these events; naming them lets the index find the steps.
    events = run.events.filter(type="progress", agent="", source="")
    for start in range(0, len(steps), STEPS_AT_ONCE):
        some = events.filter(step__in=steps[start : start + STEPS_AT_ONCE]).order_by("attempt", "seq")
        by_step |= {step: payload.get(_FIELD[x]) for step, payload in some.values_list("step", "payload")}
    return [by_step.get(step) for step in steps]


# ---- bands over the runs that differ only in the seed ---------------------------------------------------------------


def _settings(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.spec.items() if key not in ("name", "seed")}


def same_but_seed(run: Run) -> list[Run]:
    """The run and the runs of its sweep with its settings, by seed: of each other seed the newest run.

    At most MAX_SEEDS, the lowest seeds.
    """
    if run.sweep_id is None:
        return [run]
    by_seed = {}
    siblings = Run.objects.filter(sweep_id=run.sweep_id, algorithm=run.algorithm)
    for other in siblings.order_by("created_at", "pk"):
        if _settings(other) == _settings(run):
            by_seed[other.seed] = other
    by_seed[run.seed] = run
    others = [seed for seed in sorted(by_seed) if seed != run.seed][: MAX_SEEDS - 1]
    return [by_seed[seed] for seed in sorted([run.seed, *others])]


def seed_band(lines: Sequence[Buckets], width: int, kind: BandKind) -> Buckets:
    """The band over the same line of several runs, where at least two have a point; `last` is the mean.

    It is computed from the last value of each bucket. range: the lowest and the highest of them.  ci: the 95 %
    confidence interval of their mean, by Student's t.
    """
    points_of_buckets: dict[int, list[tuple[int, float]]] = {}
    for line in lines:
        for step, value in zip(line.steps, line.last, strict=True):
            points_of_buckets.setdefault(step // width, []).append((step, value))
    band = Buckets()
    for _, points in sorted(points_of_buckets.items()):
        values = [value for _, value in points]
        mean = mean_interval(values)
        if mean is None or mean.low is None or mean.high is None:
            continue
        band.steps.append(max(step for step, _ in points))
        band.low.append(mean.low if kind == "ci" else min(values))
        band.high.append(mean.high if kind == "ci" else max(values))
        band.last.append(mean.mean)
    return band


# ---- the past, beside the charts ------------------------------------------------------------------------------------


def history(run: Run, up_to: int) -> list[dict[str, Any]]:
    """Events up to a seq as the socket sends them, oldest first: the newest log lines, reports and incidents.

    At most MAX_LINES lines of the log, and MAX_REPORTS reports and incidents.
    """
    events = run.events.filter(seq__lte=up_to).order_by("-seq")
    incidents = events.incidents()
    newest = (
        _newest([events.filter(type=kind) for kind in LINES], MAX_LINES),
        _newest([*(events.filter(type=kind) for kind in REPORTS), incidents], MAX_REPORTS),
    )
    by_seq = {event["seq"]: event for some in newest for event in some}
    return [by_seq[seq] for seq in sorted(by_seq)]


def _newest(kinds: Sequence[Any], count: int) -> list[dict[str, Any]]:
    """Each kind by its own query, which the index of (run, type, seq) answers; one query would read all events."""
    newest = [event for events in kinds for event in events.values(*_COLUMNS)[:count]]
    return sorted(newest, key=lambda event: -event["seq"])[:count]
