"""The state machine of a run: its states, their transitions, and what its user wants of it.

The state changes only through `Run.transition_to` and `Run.objects.claim`; each is one conditional UPDATE and one row.
"""

from __future__ import annotations

from typing import Any

from django.db import models, transaction
from django.db.models import F
from django.utils import timezone

from hacrl_web.runs.messages.pubsub import publish_update

MAX_INTERRUPTIONS = 3
USER_STOP = "stopped by the user"
PRUNED = "pruned at step"  # begins the reason for which the pruner of a search stops a run


class State(models.TextChoices):
    """The states of a run, by the names that pages show."""

    DRAFT = "draft"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


class Desire(models.TextChoices):
    """What the user wants of a run; its supervisor carries it out."""

    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.STOPPED})
INACTIVE = TERMINAL | {State.DRAFT}  # it may be archived or deleted
# A supervisor holds the run.
HELD = frozenset({State.STARTING, State.RUNNING})
# No supervisor holds the run, and it has not ended.
IDLE = frozenset({State.DRAFT, State.QUEUED, State.PAUSED, State.LOST})
TRANSITIONS: dict[str, frozenset[str]] = {
    State.DRAFT: frozenset({State.QUEUED, State.STOPPED}),
    State.QUEUED: frozenset({State.STARTING, State.PAUSED, State.STOPPED, State.FAILED}),
    State.STARTING: frozenset({State.RUNNING, State.PAUSED, State.QUEUED, State.LOST, *TERMINAL}),
    State.RUNNING: frozenset({State.PAUSED, State.QUEUED, State.LOST, *TERMINAL}),
    State.PAUSED: frozenset({State.QUEUED, State.STOPPED}),
    State.LOST: frozenset({State.QUEUED, State.PAUSED, State.FAILED, State.STOPPED}),
    **{state: frozenset() for state in TERMINAL},
}


class RunStateMachine(models.Model):
    """The columns of a run that its state machine reads and writes, and how people and supervisors change them."""

    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    desired_state = models.CharField(max_length=8, choices=Desire.choices, default=Desire.RUN)
    desire_reason = models.TextField(blank=True)  # who wants it to pause or stop, and why
    attempt = models.PositiveIntegerField(default=0)
    interruptions = models.PositiveIntegerField(default=0)
    reason = models.TextField(blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    progress = models.JSONField(default=dict, blank=True)  # the last workers.contract.events.Progress

    class Meta:
        abstract = True

    def _row(self, **conditions: Any) -> models.QuerySet:
        """The stored row while it meets the conditions, as a query."""
        return type(self)._default_manager.filter(pk=self.pk, **conditions)

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def can_stop(self) -> bool:
        return not self.is_terminal and self.desired_state != Desire.STOP

    @property
    def can_pause(self) -> bool:
        return self.desired_state == Desire.RUN and self.state not in {*TERMINAL, State.DRAFT, State.PAUSED}

    @property
    def can_resume(self) -> bool:
        """Whether the run can resume, also while a requested pause is not reached: resuming withdraws it."""
        return self.desired_state == Desire.PAUSE and not self.is_terminal

    def transition_to(self, new: str, *, reason: str, attempt: int | None = None, **columns: Any) -> bool:
        """Change state by one conditional UPDATE and record it; False if the state machine or the fence refuses.

        attempt: refuse unless this attempt owns the run.  columns: further columns to write with it.
        A run whose user wants it to stop or pause does not return to the queue, from which no worker would take it: its
        supervisor's request stops or pauses it, and an idle one that is to stop is refused. A paused run stays paused
        until a user resumes it.
        """
        state = State(new)
        now = timezone.now()
        with transaction.atomic():
            while True:
                row_before = self._row().values_list("state", "attempt", "desired_state", "desire_reason").first()
                if row_before is None:
                    return False
                old, old_attempt, desired_state, desire_reason = row_before
                new, why = state, reason
                if state in (State.QUEUED, State.PAUSED) and desired_state == Desire.STOP:
                    if old in IDLE:  # the dispatcher ends it: its spool may hold more than is stored
                        return False
                    new, why = State.STOPPED, desire_reason or USER_STOP
                elif state == State.QUEUED and desired_state == Desire.PAUSE:
                    new, why = State.PAUSED, f"{desire_reason}; {reason}"
                if new not in TRANSITIONS[old] or attempt not in (None, old_attempt):
                    return False
                values = columns | {"state": new, "reason": why} | ({"finished_at": now} if new in TERMINAL else {})
                if new == State.PAUSED:
                    values["desired_state"] = Desire.PAUSE
                unchanged = self._row(state=old, attempt=old_attempt, desired_state=desired_state)
                if unchanged.update(**values):
                    break  # otherwise another process changed it in between: read again
            if new not in HELD:  # without a trainer, no page shows a time of the end
                progress = self._row().values_list("progress", flat=True).first()
                if progress and progress.pop("eta_s", None) is not None:
                    self._row().update(progress=progress)
            self.status_changes.create(from_state=old, to_state=new, attempt=old_attempt, reason=why, at=now)
        self.refresh_from_db()
        return True

    def request_stop(self, reason: str = USER_STOP) -> None:
        """End the run: at once if no supervisor holds it, else through its supervisor.

        reason: that of the first request is kept.
        The spool of a run that was once lost may hold more than is stored: the dispatcher ends it
        (Dispatcher.requeue_lost_runs).
        """
        transaction.on_commit(lambda: publish_update(self.pk))
        # First the desired state: from here on no worker can claim the run.
        stoppable = self._row().exclude(state__in=TERMINAL).exclude(desired_state=Desire.STOP)
        stoppable.update(desired_state=Desire.STOP, desire_reason=reason)
        self.refresh_from_db()
        if self.status_changes.filter(to_state=State.LOST).exists():
            return
        while self.state in IDLE and not self.transition_to(State.STOPPED, reason=self.desire_reason or reason):
            self.refresh_from_db()

    def request_pause(self, reason: str) -> None:
        """Pause the run: at once if it is queued, else after the step under way. reason: who and why."""
        transaction.on_commit(lambda: publish_update(self.pk))
        pausable = self._row(desired_state=Desire.RUN).exclude(state__in=[*TERMINAL, State.DRAFT])
        pausable.update(desired_state=Desire.PAUSE, desire_reason=reason)
        self.refresh_from_db()
        # A lost run is paused by the dispatcher, which counts the interruption.
        while self.state == State.QUEUED and self.desired_state == Desire.PAUSE:
            self.transition_to(State.PAUSED, reason=self.desire_reason)
            self.refresh_from_db()

    def request_resume(self, reason: str) -> None:
        """Return it to the queue, to continue from its checkpoint; or withdraw a pause that is not reached yet."""
        transaction.on_commit(lambda: publish_update(self.pk))
        paused = self._row(desired_state=Desire.PAUSE).exclude(state__in=TERMINAL)
        paused.update(desired_state=Desire.RUN, desire_reason="")
        self.refresh_from_db()
        while self.state == State.PAUSED and self.desired_state == Desire.RUN:
            self.transition_to(State.QUEUED, reason=reason)
            self.refresh_from_db()

    @property
    def will_end(self) -> bool:
        """True if an interruption ends the run: its user wants it to stop, or it was interrupted too often."""
        return self.desired_state == Desire.STOP or self.interruptions >= MAX_INTERRUPTIONS

    def requeue(self, *, reason: str, attempt: int, is_interruption: bool) -> bool:
        """Return it to the queue, to continue from its last checkpoint; it fails after three interruptions."""
        if is_interruption and self.interruptions >= MAX_INTERRUPTIONS:
            text = f"interrupted {self.interruptions + 1} times, most recently: {reason}"
            return self.transition_to(State.FAILED, reason=text, attempt=attempt)
        columns = {"interruptions": F("interruptions") + 1} if is_interruption else {}
        return self.transition_to(State.QUEUED, reason=reason, attempt=attempt, **columns)
