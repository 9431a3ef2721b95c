"""Keeps the rows of runs small and quick to read: old rollouts lose their texts, metrics are packed (metric_series.py).

The numbers and places of such rollouts stay, and so do the events of packed metrics. The dispatcher calls it between
its ticks. Each change is one transaction over few rows, and one call stops after a fraction of a second, so that other
writers wait only briefly.
"""

from __future__ import annotations

import time
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max

from hacrl_web.runs.models import HELD, RolloutSample, Run
from hacrl_web.runs.telemetry.metric_series import MIN_EVENTS, pack_block

EVERY_S = 5.0
BUDGET_S = 0.2
ROWS = 200
RUNS = 50
RUNS_CHECKED = 200
FIRST = UUID(int=0)  # below the id of every run


class TableUpkeep:
    """The job and where it continues: it takes the runs in turn, so that a long run does not hold up the others."""

    def __init__(self) -> None:
        self._next_at = 0.0
        self._cleared_to = FIRST
        self._checked_to = FIRST
        self._checked: dict[UUID, int] = {}  # last_seq up to which a run has too few events to pack

    def tick(self) -> int:
        """About twice BUDGET_S of work, every EVERY_S; returns how many rollouts lost their texts."""
        began = time.monotonic()
        if began < self._next_at:
            return 0
        self._next_at = began + EVERY_S
        self.pack()
        return self.clear()

    def pack(self) -> int:
        """Pack what is new of runs that train, and of some of the others in turn; returns how many events."""
        began, packed = time.monotonic(), 0
        names = ("pk", "last_seq", "packed_seq")
        others = Run.objects.filter(pk__gt=self._checked_to).order_by("pk").values_list(*names)
        some = list(others[:RUNS_CHECKED])
        for pk, last_seq, packed_seq in [*Run.objects.filter(state__in=HELD).values_list(*names), *some]:
            if last_seq - max(packed_seq, self._checked.get(pk, 0)) >= MIN_EVENTS:
                count = -1
                while count and time.monotonic() < began + BUDGET_S:
                    count = pack_block(Run(pk=pk))
                    packed += count
                if count:
                    return packed  # the next call continues with this run
                self._checked[pk] = last_seq
        self._checked_to = some[-1][0] if len(some) == RUNS_CHECKED else FIRST
        return packed

    def clear(self) -> int:
        """Empty the texts of old rollouts; returns how many."""
        began = time.monotonic()
        runs = Run.objects.filter(step__gt=F("texts_from"), pk__gt=self._cleared_to).order_by("pk")
        cleared, due = 0, list(runs.only("pk", "spec", "texts_from")[:RUNS])
        for run in due:
            count = ROWS
            while count == ROWS:
                count = clear_texts(run)
                cleared += count
                if count < ROWS:
                    self._cleared_to = run.pk
                if time.monotonic() > began + BUDGET_S:
                    return cleared
        if len(due) < RUNS:
            self._cleared_to = FIRST
        return cleared


def clear_texts(run: Run) -> int:
    """Empty the texts of at most ROWS rollouts of steps that are no longer kept; returns how many."""
    telemetry = run.spec.get("telemetry", {})  # a run of an older version may lack it
    num_steps = telemetry.get("rollout_steps_kept", 0)
    newest = run.rollouts.aggregate(Max("step"))["step__max"]
    if not num_steps or newest is None:
        return 0
    first_kept = newest - (num_steps - 1) * max(1, telemetry.get("rollout_interval", 1))
    if first_kept <= run.texts_from:
        return 0
    # No recorded prompt is empty: an empty one has lost its text.
    old = run.rollouts.filter(step__gte=run.texts_from, step__lt=first_kept).exclude(prompt="").order_by("step")
    rows = list(old.values_list("pk", "step")[:ROWS])
    run.texts_from = rows[-1][1] if len(rows) == ROWS else first_kept
    with transaction.atomic():
        RolloutSample.objects.filter(pk__in=[pk for pk, _ in rows]).update(prompt="", completion="", turns=None)
        Run.objects.filter(pk=run.pk).update(texts_from=run.texts_from)
    return len(rows)
