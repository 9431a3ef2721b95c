"""Evaluates the alert rules on the stored metrics of each run, each step once, and writes alert rows.

Cursor, rule state and alerts change in one transaction, by compare-and-swap on the cursor: a crash repeats nothing, of
two processes one wins, and a replay from the first event raises no alert twice.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Q
from pydantic import ValidationError

from hacrl_web.alerts.models import ENDED, Alert, Cursor
from hacrl_web.alerts.rules import apply_rules
from hacrl_web.alerts.rules.signals import Facts, StepMetrics
from hacrl_web.runs.models import HELD, TERMINAL, Run, TelemetryEvent
from hacrl_web.runs.storage.stored_spec import readable_spec

BATCH_EVENTS = 2000
SWEEP_EVERY_S = 60.0
TYPES = ("metrics", "progress")
log = logging.getLogger(__name__)


class Evaluator:
    """Evaluates the new steps of all runs; call `tick` about once a second."""

    def __init__(self) -> None:
        self._facts: dict[UUID, Facts | None] = {}
        self._last_seqs: dict[UUID, int] = {}  # last_seq of each run at its last evaluation
        self._failed: dict[UUID, int] = {}  # last_seq of each run that failed since the last sweep
        self._next_sweep = 0.0

    def tick(self) -> int:
        """Evaluate all new steps; returns how many runs had any. A run that fails does not hold up the others."""
        runs = self._due()
        for run in runs:
            try:
                while self.evaluate_batch(run):
                    pass
            except (OperationalError, InterfaceError):  # the database is unreachable for all of them
                raise
            except Exception:  # its events are not those of a trainer of ours
                log.exception("run %s: its alerts could not be evaluated", run["pk"])
                self._failed[run["pk"]] = run["last_seq"]
            else:
                self._last_seqs[run["pk"]] = run["last_seq"]
        return len(runs)

    def _due(self) -> list[dict[str, Any]]:
        """Runs with new events that train or have just ended; once a minute also those never evaluated, or in vain."""
        # One query each, so that each uses its index; one query for all would read every run.
        choices = [Q(state__in=HELD), Q(alert_cursor__is_done=False)]
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY_S
            self._failed = {}
            choices.append(Q(alert_cursor=None, last_seq__gt=0))
        names = ("pk", "state", "last_seq", "alert_cursor__seq")
        runs = {run["pk"]: run for choice in choices for run in Run.objects.filter(choice).order_by().values(*names)}
        self._facts = {pk: facts for pk, facts in self._facts.items() if pk in runs}
        self._last_seqs = {pk: seq for pk, seq in self._last_seqs.items() if pk in runs}
        # A paused run has events after its last step, so its cursor alone would always look behind.
        return [
            run
            for pk, run in runs.items()
            if self._failed.get(pk) != run["last_seq"]
            and (run["state"] in TERMINAL or run["last_seq"] > self._last_seqs.get(pk, run["alert_cursor__seq"] or 0))
        ]

    def evaluate_batch(self, run: dict[str, Any]) -> bool:
        """Evaluate one batch of a run's events; True while there may be more."""
        cursor, _ = Cursor.objects.get_or_create(run_id=run["pk"])
        state = cursor.state if cursor.state.get("version") == apply_rules.VERSION else apply_rules.new_state()
        after = cursor.seq if state is cursor.state else 0
        events = list(
            TelemetryEvent.objects.filter(run_id=run["pk"], seq__gt=after, type__in=TYPES)
            .order_by("seq")
            .values("seq", "attempt", "type", "step", "agent", "source", "payload", "time")[:BATCH_EVENTS]
        )
        is_full = len(events) == BATCH_EVENTS
        rows, seq = self._changes(run["pk"], state, events)
        if is_full and seq is None:
            seq = events[-1]["seq"]  # a full batch without the end of a step: not from our trainer, so skip it
        is_end = run["state"] in TERMINAL and not is_full
        if seq is None and not is_end:
            return False
        with transaction.atomic():
            cursor_row = Cursor.objects.filter(pk=cursor.pk, seq=cursor.seq, is_done=False)
            if is_end:
                apply_rules.close_all(state)
            if not cursor_row.update(seq=after if seq is None else seq, state=state, is_done=is_end):
                return False  # another process has evaluated them
            self._write(run["pk"], rows)
            if is_end:
                ended = Run.objects.only("step", "finished_at", "state").get(pk=run["pk"])
                Alert.objects.filter(run=ended, cleared_at=None).update(
                    cleared_step=ended.step, cleared_at=ended.finished_at, cleared_reason=f"{ENDED}: {ended.state}"
                )
        return is_full

    def _changes(
        self, run_id: UUID, state: apply_rules.State, events: list[dict[str, Any]]
    ) -> tuple[list[tuple[apply_rules.AlertChange, dict[str, Any]]], int | None]:
        """Each change with the event that ended its step, and the seq of the last step's end."""
        facts = self._facts_of(run_id)
        changes, seq = [], None
        pending: dict[int, dict[tuple[str, str], Any]] = {}
        for event in events:
            if event["type"] == "metrics":
                pending.setdefault(event["step"] or 0, {})[event["agent"], event["source"]] = event["payload"]
                continue
            seq = event["seq"]
            step = StepMetrics(pending.pop(event["step"], {}))
            pending.clear()  # metrics of a step that an attempt did not finish
            if facts is not None and step.metrics:
                changes += [(change, event) for change in apply_rules.step_changes(state, facts, event["step"], step)]
        return changes, seq

    def _facts_of(self, run_id: UUID) -> Facts | None:
        if run_id not in self._facts:
            try:
                spec = Run.objects.values_list("spec", flat=True).get(pk=run_id)
                self._facts[run_id] = Facts.of(readable_spec(spec))
            except (ValidationError, Run.DoesNotExist) as error:
                log.warning("run %s has settings that cannot be read, so it gets no alerts: %s", run_id, error)
                self._facts[run_id] = None
        return self._facts[run_id]

    def _write(self, run_id: UUID, changes: list[tuple[apply_rules.AlertChange, dict[str, Any]]]) -> None:
        for change, event in changes:
            place = {"run_id": run_id, "kind": change.rule.kind, "agent": change.agent, "source": change.source}
            at = datetime.fromtimestamp(event["time"], tz=UTC)
            if change.is_raised:
                values = {"attempt": event["attempt"], "number": change.number, "text": change.text}
                values |= {"raised_step": event["step"], "raised_at": at}
                Alert.objects.get_or_create(**place, raised_seq=event["seq"], defaults=values)
            else:
                rule = change.rule
                bound = "at least" if rule.is_low else "at most"
                reason = f"{change.number:.3g}: {bound} {rule.clear_at:g} for {rule.clear_after} steps"
                Alert.objects.filter(**place, cleared_at=None, raised_seq__lt=event["seq"]).update(
                    cleared_step=event["step"], cleared_at=at, cleared_reason=reason
                )
