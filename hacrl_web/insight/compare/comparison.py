"""Several runs beside each other: one metric of each agent over a chosen axis, and a table of what each reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.series import series

MAX_RUNS = 8  # as many as there are colours
BUCKETS = 500  # of up to three points each: the least, the greatest and the last
ACCURACY = "accuracy"
MEAN = ""  # in the place of an agent: the row over all of them; an agent may well be called "mean"
# Name in the address -> label; the key of a progress event is beside it.
AXES = {"step": "step", "rollouts": "rollouts generated", "tokens": "tokens generated", "time": "training time, s"}
_PROGRESS_KEY = {"rollouts": "rollouts_generated", "tokens": "tokens_generated", "time": "elapsed_s"}
# Of these the lowest is best.
LOWER_IS_BETTER = ("loss", "kl", "skipped_updates", "guard_frac", "grad_norm", "completions/clipped_ratio")
LOWER_FAMILIES = ("verifier/", "audit/disagreement", "frac_reward_zero_std", "clip_ratio/", "sampling_logp_difference/")
Point = tuple[int, float]  # step, value


def metric_names(runs: Iterable[Run]) -> list[str]:
    """Metrics of single agents that any of these runs has recorded, held-out accuracy first."""
    names: dict[str, None] = {}
    for run in runs:
        if run.events.filter(type="evaluation").exists():
            names[ACCURACY] = None
        for agent in run.agent_names:
            newest = run.events.filter(type="metrics", agent=agent, source="").order_by("-step", "-seq").first()
            if newest is not None:
                names |= dict.fromkeys([*newest.payload.get("ratios", {}), *newest.payload.get("values", {})])
    rest = sorted(set(names) - {ACCURACY, "reward/mean"})
    return [name for name in (ACCURACY, "reward/mean") if name in names] + rest


def lowest_is_best(metric: str) -> bool:
    return metric in LOWER_IS_BETTER or metric.startswith(LOWER_FAMILIES)


def points(run: Run, metric: str) -> dict[str, list[Point]]:
    """The agents' (step, value) by step, the latest attempt of each; steps without a number are left out."""
    by_agent: dict[str, list[Point]] = {name: [] for name in run.agent_names}
    for column in series(run, {metric}):
        if not column["source"] and column["agent"] in by_agent:
            pairs = zip(column["steps"], column["values"], strict=True)
            by_agent[column["agent"]] = [(step or 0, value) for step, value in pairs if value is not None]
    return by_agent


def mean_points(by_agent: Mapping[str, Sequence[Point]]) -> list[Point]:
    """The mean over all agents at the steps where every agent has a value."""
    columns = [dict(points_of_agent) for points_of_agent in by_agent.values()]
    if not columns:
        return []
    shared = set(columns[0]).intersection(*columns[1:])
    return [(step, fmean(column[step] for column in columns)) for step in sorted(shared)]


def axis_of(run: Run, axis: str) -> dict[int, float] | None:
    """step -> place on the axis; None where the axis is the step itself. The untrained start stands at 0."""
    if axis not in _PROGRESS_KEY:
        return None
    rows = run.events.filter(type="progress").order_by("attempt", "seq").values_list("step", "payload")
    positions = {
        step or 0: float(payload.get(_PROGRESS_KEY[axis]) or 0) for step, payload in rows.iterator(chunk_size=2000)
    }
    return {0: 0.0} | positions


@dataclass(frozen=True)
class Drawn:
    """One line of the picture: run and agent by their places."""

    run: int
    agent: str
    xs: list[float]
    ys: list[float]


def drawn(runs: Sequence[Run], metric: str, axis: str, low: float = -math.inf, high: float = math.inf) -> list[Drawn]:
    """Each run's agents, between low and high of the axis, in at most 3 BUCKETS points."""
    lines = []
    for place, run in enumerate(runs):
        where = axis_of(run, axis)
        for agent, line in points(run, metric).items():
            placed = [(float(step), y) if where is None else (where.get(step), y) for step, y in line]
            inside = [(x, y) for x, y in placed if x is not None and low <= x <= high]
            bucket_points = bucketed_line(inside)
            lines.append(Drawn(place, agent, [x for x, _ in bucket_points], [y for _, y in bucket_points]))
    return lines


def bucketed_line(line: Sequence[tuple[float, float]], count: int = BUCKETS) -> list[tuple[float, float]]:
    """Of each bucket of consecutive points the least, the greatest and the last, in their order; all where few."""
    if len(line) <= 3 * count:
        return list(line)
    result: list[tuple[float, float]] = []
    for number in range(count):
        start, end = number * len(line) // count, (number + 1) * len(line) // count
        places = range(start, end)
        extremes = {min(places, key=lambda i: line[i][1]), max(places, key=lambda i: line[i][1]), end - 1}
        result += [line[i] for i in sorted(extremes)]
    return result


@dataclass
class CompareRow:
    """What one agent of a run reached, or the mean of all; differences are to the baseline run's row of this agent."""

    run: Run
    place: int
    agent: str
    best: float | None = None
    best_step: int | None = None
    last: float | None = None
    last_step: int | None = None
    best_difference: float | None = None
    last_difference: float | None = None

    @property
    def is_mean(self) -> bool:
        return self.agent == MEAN

    @property
    def position(self) -> int:
        """The agent's place in its run."""
        names = self.run.agent_names
        return names.index(self.agent) if self.agent in names else 0


def _row(run: Run, place: int, agent: str, line: Sequence[Point], lowest: bool) -> CompareRow:
    row = CompareRow(run, place, agent)
    if line:
        # The first of equals: who is there earlier was better.
        row.best_step, row.best = (min if lowest else max)(line, key=lambda point: point[1])
        row.last_step, row.last = line[-1]
    return row


def comparison_table(runs: Sequence[Run], metric: str, baseline: Run, *, lowest: bool) -> list[CompareRow]:
    """For each run its mean, where it has several agents, and each agent."""
    rows: list[CompareRow] = []
    for place, run in enumerate(runs):
        by_agent = points(run, metric)
        if len(by_agent) > 1:
            rows.append(_row(run, place, MEAN, mean_points(by_agent), lowest))
        rows += [_row(run, place, agent, line, lowest) for agent, line in by_agent.items()]
    base = {row.agent: row for row in rows if row.run.pk == baseline.pk}
    if len(baseline.agent_names) == 1:  # its one agent is its mean
        base.setdefault(MEAN, next(iter(base.values())))
    for row in rows:
        other = base.get(row.agent)
        if other is not None and row.run.pk != baseline.pk:
            row.best_difference = _difference(row.best, other.best)
            row.last_difference = _difference(row.last, other.last)
    return rows


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def result_of(rows: Iterable[CompareRow], run: Run) -> float | None:
    """A run's last value: the mean of its agents, or its one agent's."""
    return next((row.last for row in rows if row.run.pk == run.pk), None)
