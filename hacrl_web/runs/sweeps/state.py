"""The state of a sweep: its runs by variant and seed, its progress, and when it will end.

Of several runs of one variant and seed the newest counts: a retry replaces the run that failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Max

from hacrl_web.runs.models import HELD, Run, State, Sweep, TelemetryEvent


@dataclass(frozen=True)
class SweepLine:
    """A variant with its run of each seed, in the order of `SweepState.seeds`; None for seeds without a run."""

    label: str
    cells: list[Run | None]

    @property
    def newest(self) -> Run:
        return max((run for run in self.cells if run), key=lambda run: run.created_at)


@dataclass(frozen=True)
class SweepState:
    """runs: all, also those that a retry has replaced, in the order of their launch."""

    runs: list[Run]
    seeds: list[int]
    lines: list[SweepLine]
    is_searching: bool = False  # further runs may follow

    @property
    def current(self) -> list[Run]:
        """The runs that count."""
        return [run for line in self.lines for run in line.cells if run]

    @property
    def counts(self) -> dict[str, int]:
        """Number of runs by state, in the order of the states."""
        by_state = Counter(run.state for run in self.current)
        return {state: by_state[state] for state in State.values if by_state[state]}

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last run ends, at the pace so far and with as many runs at a time as now; None if unknown.

        Paused runs are left out.
        """
        waiting = [run for run in self.current if not run.is_terminal and run.state != State.PAUSED]
        pace = _seconds_per_step(self.runs)
        estimates = [_seconds_left(run, pace) for run in waiting]
        if not estimates or None in estimates:
            return None
        remaining_s = [seconds for seconds in estimates if seconds is not None]
        at_a_time = max(1, sum(run.state in HELD for run in waiting))
        return max(sum(remaining_s) / at_a_time, max(remaining_s))

    def in_state(self, *states: str) -> list[Run]:
        return [run for run in self.current if run.state in states]

    def progress(self) -> dict[str, Any]:
        """The numbers that page and API show above the runs."""
        cut_short = (State.FAILED, State.STOPPED)
        return {
            "runs": len(self.current),
            "counts": self.counts,
            "steps": sum(run.step for run in self.current),
            # Of a failed or stopped run, the steps that it did.
            "total_steps": sum(run.step if run.state in cut_short else run.total_steps for run in self.current),
            "eta_s": self.eta_s,
            "is_finished": not self.is_searching and all(run.is_terminal for run in self.current),
        }


def state_of(sweep: Sweep) -> SweepState:
    """The state of a sweep, by one query without the runs' settings."""
    ordered = list(sweep.runs.defer("spec").order_by("created_at", "pk"))
    cells: dict[str, dict[int, Run]] = {}
    labels: dict[Any, str] = {}  # by run
    for run in ordered:
        label = labels.get(run.retry_of_id) or run.variant or run.algorithm
        number = 1
        # Runs from before variants had names may differ in a setting: each gets a row.
        while run.retry_of_id is None and run.seed in cells.get(label, {}):
            number += 1
            label = f"{run.variant or run.algorithm} ({number})"
        labels[run.pk] = label
        cells.setdefault(label, {})[run.seed] = run
    seeds = sorted({run.seed for run in ordered})
    lines = [SweepLine(label, [by_seed.get(seed) for seed in seeds]) for label, by_seed in cells.items()]
    return SweepState(ordered, seeds, lines, sweep.is_searching)


def _seconds_per_step(runs: Sequence[Run]) -> dict[str, float]:
    """The measured pace of each algorithm; that of all together under the empty name."""
    seconds: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    for run in runs:
        elapsed = run.progress.get("elapsed_s") or 0
        if elapsed > 0 and run.step > 0:
            for name in (run.algorithm, ""):
                seconds[name] += elapsed
                steps[name] += run.step
    return {name: seconds[name] / steps[name] for name in seconds}


def _seconds_left(run: Run, pace: dict[str, float]) -> float | None:
    if (eta_s := run.progress.get("eta_s")) is not None:
        return float(eta_s)
    one_step = pace.get(run.algorithm, pace.get(""))
    return None if one_step is None else one_step * max(0, run.total_steps - run.step)


def newest_checkpoints(runs: Sequence[Run]) -> dict[Any, int]:
    """The step of the newest checkpoint of each of these runs that has one."""
    events = TelemetryEvent.objects.filter(run__in=[run.pk for run in runs], type="checkpoint").order_by()
    return dict(events.values_list("run").annotate(Max("step")))
