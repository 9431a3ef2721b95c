"""Where a run spent its time and memory: its progress events as buckets of steps, and its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from hacrl_web.runs.models import Run

BUCKETS = 240
PHASES = ("generate", "verify", "update", "telemetry", "evaluate", "checkpoint", "other")


@dataclass
class Bucket:
    """Consecutive steps, first to last. Sums over them; memory is the highest."""

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
    """One life of the trainer."""

    number: int
    started_at: datetime | None = None
    from_step: int | None = None
    device: str = ""
    host: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    last_step: int | None = None
    ending: str = ""


@dataclass(frozen=True)
class TimedStep:
    """What one progress event tells of its step alone."""

    step: int
    attempt: int
    seconds: float
    tokens: int
    rollouts: int
    phase_s: dict[str, float]
    resident_bytes: int | None
    device_peak_bytes: int | None


def steps(run: Run) -> list[TimedStep]:
    """Each step once, of its latest attempt. A resumed attempt first tells the totals that it goes on from.

    Step 0 is none: a run that only evaluates tells there how far it is.
    """
    begins = dict(run.events.filter(type="started").order_by("seq").values_list("attempt", "step"))
    events = run.events.filter(type="progress", step__gt=0).order_by("attempt", "seq")
    rows = events.values_list("attempt", "step", "payload")
    by_step: dict[int, TimedStep] = {}
    before: tuple[int, dict[str, Any]] | None = None
    for attempt, step, payload in rows.iterator(chunk_size=2000):
        if before is None or before[0] != attempt:
            is_resumed = bool(step) and step == begins.get(attempt)
            before = (attempt, payload if is_resumed else {})
            if is_resumed:
                continue
        last = before[1]
        phase_s = {name: float(value or 0) for name, value in (payload.get("phase_s") or {}).items()}
        seconds = _rise(payload, last, "elapsed_s") if last else sum(phase_s.values())
        by_phase = {name: phase_s.get(name, 0.0) for name in PHASES[:-1]}
        by_phase["other"] = max(0.0, seconds - sum(by_phase.values()))
        by_step[step or 0] = TimedStep(
            step or 0,
            attempt,
            max(seconds, sum(by_phase.values())),
            int(_rise(payload, last, "tokens_generated")),
            int(_rise(payload, last, "rollouts_generated")),
            by_phase,
            payload.get("resident_bytes"),
            payload.get("device_peak_bytes"),
        )
        before = (attempt, payload)
    return [by_step[step] for step in sorted(by_step)]


def _rise(payload: dict[str, Any], last: dict[str, Any], name: str) -> float:
    return max(0.0, float(payload.get(name) or 0) - float(last.get(name) or 0))


def buckets(steps: Sequence[TimedStep], count: int = BUCKETS) -> list[Bucket]:
    """At most `count` buckets of as many consecutive steps each."""
    width = max(1, -(-len(steps) // count))
    result = []
    for start in range(0, len(steps), width):
        members = steps[start : start + width]
        one = Bucket(members[0].step, members[-1].step)
        for step in members:
            one.seconds += step.seconds
            one.tokens += step.tokens
            one.rollouts += step.rollouts
            for name, value in step.phase_s.items():
                one.phase_s[name] = one.phase_s.get(name, 0.0) + value
            one.resident_bytes = _highest(one.resident_bytes, step.resident_bytes)
            one.device_peak_bytes = _highest(one.device_peak_bytes, step.device_peak_bytes)
        result.append(one)
    return result


def _highest(a: int | None, b: int | None) -> int | None:
    return max((value for value in (a, b) if value is not None), default=None)


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


def interruptions(steps: Sequence[TimedStep]) -> list[int]:
    """First steps of later attempts: before each of them the run was interrupted or paused."""
    return [b.step for a, b in pairwise(steps) if a.attempt != b.attempt]
