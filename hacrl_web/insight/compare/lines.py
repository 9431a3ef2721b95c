"""Lines of several runs in one picture: of each run or each of its agents, or the mean of groups of runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from hacrl_web.insight.downsample import MAX_POINTS, extreme_places
from hacrl_web.insight.overview.overview import XAxis, positions
from hacrl_web.insight.plotly_figures import DrawnLine
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.metric_series import read_series
from hacrl_web.web.schemas import Number
from hacrl_web.web.statistics import mean_interval

MAX_RUNS = 60
MAX_METRICS = 12
Agents = Literal["mean", "each"]


class OverlaidLine(TypedDict):
    """group: the number that the request gave its runs; without groups the run's place.  agent: empty for a mean.

    low, high: 95 % confidence interval of the mean over the group's runs, of width 0 where one run has a value.
    """

    metric: str
    group: int
    agent: str
    runs: int
    x: list[Number]
    y: list[float]
    low: NotRequired[list[float]]
    high: NotRequired[list[float]]


@dataclass
class Curve:
    """Values by place on the x axis, in order."""

    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)


def overlaid_lines(
    runs: Sequence[Run],
    metrics: Collection[str],
    *,
    groups: Sequence[int] | None = None,
    x: XAxis = "step",
    agents: Agents = "mean",
    low: float | None = None,
    high: float | None = None,
) -> list[OverlaidLine]:
    """A line for each run (or agent) and metric, between low and high of the axis; with groups one for each group.

    A metric of pairs is the mean over the pairs. Of more than MAX_POINTS points, each bucket keeps its lowest, highest
    and last.
    """
    numbers = list(range(len(runs))) if groups is None else groups
    curves: dict[tuple[str, int, str], list[dict[int, float]]] = {}
    places: dict[tuple[str, int, str], list[dict[int, float]]] = {}
    for run, group in zip(runs, numbers, strict=True):
        by_name = run_values(run, metrics, "mean" if groups is not None else agents)
        steps = sorted({step for values in by_name.values() for step in values})
        xs = steps if x == "step" else positions(run, steps, x)
        place_of = {step: float(at) for step, at in zip(steps, xs, strict=True) if at is not None}
        for (metric, agent), values in by_name.items():
            key = (metric, group, agent)
            curves.setdefault(key, []).append({step: value for step, value in values.items() if step in place_of})
            places.setdefault(key, []).append(place_of)
    lines: list[OverlaidLine] = []
    for key, of_runs in curves.items():
        curve = _bounded(mean_curve(of_runs, places[key], has_band=groups is not None), low, high)
        metric, group, agent = key
        line: OverlaidLine = {
            "metric": metric, "group": group, "agent": agent, "runs": len(of_runs), "x": [*curve.x], "y": curve.y,
        }  # fmt: skip
        if groups is not None:
            line["low"], line["high"] = curve.low, curve.high
        lines.append(line)
    return lines


def agent_lines(run: Run, metric: str) -> list[DrawnLine]:
    """A metric of each agent, or the mean over the pairs, to be drawn in the agents' colours."""
    places = {name: place for place, name in enumerate(run.agent_names)}
    return [
        (line["agent"] or "mean of the pairs", line["x"], line["y"], {"place": places.get(line["agent"], 0)})
        for line in overlaid_lines([run], {metric}, agents="each")
    ]


def run_values(run: Run, metrics: Collection[str], agents: Agents) -> dict[tuple[str, str], dict[int, float]]:
    """(metric, agent) -> step -> value. agent: empty for the mean, taken at the steps that all agents or pairs have."""
    series: dict[str, dict[tuple[str, str], dict[int, float]]] = {metric: {} for metric in metrics}
    for one in read_series(run, metrics):
        series[one.metric][one.agent, one.source] = dict(one.points())
    values: dict[tuple[str, str], dict[int, float]] = {}
    for metric, by_pair in series.items():
        own = {agent: points for (agent, source), points in by_pair.items() if not source}
        if own and agents == "each":
            values |= {(metric, agent): own[agent] for agent in run.agent_names if agent in own}
            continue
        if columns := [points for points in (own or by_pair).values() if points]:
            values[metric, ""] = mean_values(columns)
    return values


def mean_values(columns: Collection[Mapping[int, float]]) -> dict[int, float]:
    """The mean by step, at the steps that all of the columns have."""
    shared = set.intersection(*map(set, columns))
    return {step: fmean(column[step] for column in columns) for step in sorted(shared)}


def mean_curve(
    of_runs: Sequence[Mapping[int, float]], places: Sequence[Mapping[int, float]], *, has_band: bool
) -> Curve:
    """The mean over runs by step, at the steps that at least half of the runs with any value have, and its interval.

    The place of a step is the mean of its places in these runs.
    """
    present = [(values, place) for values, place in zip(of_runs, places, strict=True) if values]
    curve = Curve()
    for step in sorted({step for values, _ in present for step in values}):
        pairs = [(values[step], place[step]) for values, place in present if step in values]
        if 2 * len(pairs) < len(present):
            continue
        interval = mean_interval([value for value, _ in pairs])
        if interval is None:
            continue
        half = interval.half_width or 0.0
        curve.x.append(fmean(place for _, place in pairs))
        curve.y.append(interval.mean)
        if has_band:
            curve.low.append(interval.mean - half)
            curve.high.append(interval.mean + half)
    return curve


def _bounded(curve: Curve, low: float | None, high: float | None) -> Curve:
    """The points between low and high, in order of the axis, at most MAX_POINTS of them."""
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    inside = sorted((at for at, place in enumerate(curve.x) if low <= place <= high), key=curve.x.__getitem__)
    places = extreme_places(range(len(inside)), [curve.y[at] for at in inside], MAX_POINTS)
    order = [inside[at] for at in places]
    columns = (curve.x, curve.y, curve.low, curve.high)
    return Curve(*([values[at] for at in order] if values else [] for values in columns))
