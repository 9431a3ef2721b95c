"""Where a run spent its time and memory: progress events in buckets of steps, attempts, and pictures of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from hacrl_web.insight.downsample import bucket_places, width_for
from hacrl_web.insight.plotly_figures import LEGEND_BELOW, as_json
from hacrl_web.runs.models import Run
from hacrl_web.web.schemas import EVERY_FIELD

BUCKETS = 240
PHASES = ("generate", "verify", "update", "telemetry", "evaluate", "checkpoint", "other")
# Okabe and Ito's colours in mid-tones, legible on light and dark grounds.
COLOURS = ("#2f8fc9", "#009e73", "#c07f00", "#bb6293", "#d55e00", "#a39800", "#8b8e93")
GREY = "#8b8e93"
GIB = 2**30
FEW_STEPS = 8  # with fewer, the axis would name halves


@dataclass
class TimeBucket:
    """Consecutive steps, first to last: sums over them, and the highest memory."""

    __pydantic_config__ = EVERY_FIELD
    first: int
    last: int
    seconds: float = 0.0
    phase_s: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    rollouts: int = 0
    resident_bytes: int | None = None
    device_peak_bytes: int | None = None

    @property
    def steps(self) -> int:
        return self.last - self.first + 1

    @property
    def label(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"

    @property
    def tokens_per_s(self) -> float | None:
        return self.tokens / self.seconds if self.seconds else None

    @property
    def rollouts_per_s(self) -> float | None:
        return self.rollouts / self.seconds if self.seconds else None

    @property
    def phases(self) -> list[float]:
        """Seconds a step, in the order of PHASES."""
        return [self.phase_s.get(phase, 0.0) / self.steps for phase in PHASES]


@dataclass
class Attempt:
    """One start of the trainer."""

    __pydantic_config__ = EVERY_FIELD
    number: int
    started_at: datetime | None = None
    from_step: int | None = None
    device: str = ""
    host: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    last_step: int | None = None
    ending: str = ""


def timed_steps(run: Run) -> tuple[list[TimeBucket], list[int]]:
    """Each step by itself, of its latest attempt, and the steps before which the run was interrupted or paused.

    A resumed attempt first repeats the totals that it continues from. Step 0 is the progress of an evaluation.
    """
    first_steps = dict(run.events.filter(type="started").order_by("seq").values_list("attempt", "step"))
    events = run.events.filter(type="progress", step__gt=0).order_by("attempt", "seq")
    by_step: dict[int, tuple[int, TimeBucket]] = {}  # with its attempt
    last: dict[str, Any] = {}
    last_attempt = None
    for attempt, step, payload in events.values_list("attempt", "step", "payload").iterator(chunk_size=2000):
        if attempt != last_attempt:
            last_attempt, last = attempt, {}
            if step == first_steps.get(attempt):
                last = payload
                continue
        by_step[step] = attempt, _timed_step(step, payload, last)
        last = payload
    steps = [by_step[step] for step in sorted(by_step)]
    return [one for _, one in steps], [one.first for (before, _), (after, one) in pairwise(steps) if before != after]


def _timed_step(step: int, payload: dict[str, Any], last: dict[str, Any]) -> TimeBucket:
    """payload: totals at the end of the step.  last: of the step before; empty at an attempt's first."""

    def rise(name: str) -> float:
        return max(0.0, float(payload.get(name) or 0) - float(last.get(name) or 0))

    phase_s = {name: float(value or 0) for name, value in (payload.get("phase_s") or {}).items()}
    seconds = rise("elapsed_s") if last else sum(phase_s.values())
    by_phase = {name: phase_s.get(name, 0.0) for name in PHASES[:-1]}
    by_phase["other"] = max(0.0, seconds - sum(by_phase.values()))
    return TimeBucket(
        step,
        step,
        max(seconds, sum(by_phase.values())),
        by_phase,
        int(rise("tokens_generated")),
        int(rise("rollouts_generated")),
        payload.get("resident_bytes"),
        payload.get("device_peak_bytes"),
    )


def buckets(steps: Sequence[TimeBucket], most: int = BUCKETS) -> list[TimeBucket]:
    """At most `most` buckets. steps: ascending."""
    numbers = [one.first for one in steps]
    width = width_for(numbers[0], numbers[-1], most) if numbers else 1
    return [_bucket(steps[places.start : places.stop]) for places in bucket_places(numbers, width)]


def _bucket(steps: Sequence[TimeBucket]) -> TimeBucket:
    phase_s: Counter[str] = Counter()
    for step in steps:
        phase_s.update(step.phase_s)
    return TimeBucket(
        steps[0].first,
        steps[-1].last,
        sum(step.seconds for step in steps),
        dict(phase_s),
        sum(step.tokens for step in steps),
        sum(step.rollouts for step in steps),
        max((step.resident_bytes for step in steps if step.resident_bytes is not None), default=None),
        max((step.device_peak_bytes for step in steps if step.device_peak_bytes is not None), default=None),
    )


def attempts(run: Run) -> list[Attempt]:
    """Every attempt with its device and how it ended, oldest first."""
    by_number: dict[int, Attempt] = {}
    events = run.events.filter(type__in=("started", "finished")).order_by("seq")
    for number, kind, step, payload, when in events.values_list("attempt", "type", "step", "payload", "time"):
        one = by_number.setdefault(number, Attempt(number))
        if kind == "started":
            one.started_at, one.from_step = datetime.fromtimestamp(when, UTC), step
            one.device, one.versions = str(payload.get("device", "")), dict(payload.get("versions") or {})
        else:
            one.last_step = step
            one.ending = f"{payload.get('outcome', '')}: {payload.get('reason', '')}".strip(": ")
    for change in run.status_changes.all():
        one = by_number.setdefault(change.attempt, Attempt(change.attempt)) if change.attempt else Attempt(0)
        if change.to_state == "starting":
            one.host = change.reason.removeprefix("claimed by ")
        elif change.from_state in ("starting", "running") and change.to_state != "running":
            text = f"{change.to_state}: {change.reason}" if change.reason else change.to_state
            one.ending = text if not one.ending or change.to_state not in one.ending else one.ending
    return [by_number[number] for number in sorted(by_number)]


# ---- pictures, which js/lib/figures.js draws -------------------------------------------------------------------------


def figures(buckets: Sequence[TimeBucket], breaks: Sequence[int]) -> dict[str, Any]:
    """Seconds a step by phase, rates, and memory if it was recorded.

    breaks: steps before which the run was interrupted.
    """
    middles = [(one.first + one.last) / 2 for one in buckets]
    is_short = bool(buckets) and buckets[-1].last - buckets[0].first < FEW_STEPS
    by_name = {
        "phases": _as_json(_phases(buckets, middles), "seconds a step", breaks, is_short),
    }
    memory = _memory(buckets, middles)
    if memory.data:
        by_name["memory"] = _as_json(memory, "GiB", breaks, is_short)
    return by_name


def _phases(buckets: Sequence[TimeBucket], middles: list[float]) -> go.Figure:
    figure = go.Figure()
    for place, name in enumerate(PHASES):
        seconds = [one.phases[place] for one in buckets]
        if any(seconds):
            figure.add_bar(
                x=middles,
                y=seconds,
                name=name,
                customdata=[one.label for one in buckets],
                marker={"color": COLOURS[place], "line": {"width": 0}},
                width=[one.steps for one in buckets],
                hovertemplate=f"{name}: %{{y:.3g}} s, step %{{customdata}}<extra></extra>",
            )
    return figure.update_layout(barmode="stack", bargap=0, hovermode="closest")


def _memory(buckets: Sequence[TimeBucket], middles: list[float]) -> go.Figure:
    figure = go.Figure(layout={"hovermode": "x"})
    for name, values, colour, dash in (
        ("process, in RAM", [one.resident_bytes for one in buckets], COLOURS[0], "solid"),
        ("GPU tensors, peak", [one.device_peak_bytes for one in buckets], COLOURS[4], "dot"),
    ):
        if any(value is not None for value in values):
            gib = [None if value is None else value / GIB for value in values]
            figure.add_scatter(x=middles, y=gib, name=name, mode="lines", line={"color": colour, "dash": dash})
    return figure


def _as_json(figure: go.Figure, title: str, breaks: Sequence[int], is_short: bool) -> dict[str, Any]:
    """The figure as JSON, with a dashed line at each break."""
    for step in breaks:
        figure.add_vline(x=step - 0.5, line={"color": GREY, "width": 1.5, "dash": "dash"})
    return as_json(
        figure,
        showlegend=True,
        legend=LEGEND_BELOW,
        xaxis={"title": {"text": "step", "standoff": 4}} | ({"dtick": 1} if is_short else {}),
        yaxis={"title": {"text": title}, "rangemode": "tozero"},
    )
