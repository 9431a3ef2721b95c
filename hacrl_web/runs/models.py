"""The rows of a run: the job itself, its state machine, and what its trainer reported.

Status changes only through `Run.transition_to` and `Run.objects.claim`. Every write of a supervisor names its attempt,
the fencing token: it is refused once another attempt owns the run, or the run has ended.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import F
from django.db.models.functions import Coalesce
from django.urls import reverse
from django.utils import timezone

from hacrl_web.accounts.visibility import OwnedQuerySet

MAX_INTERRUPTIONS = 3
USER_STOP = "stopped by the user"


class State(models.TextChoices):
    """Where a run is; the words of the pages."""

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
    """What the user wants of a run; its supervisor obeys."""

    RUN = "run"
    STOP = "stop"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.STOPPED})
# A supervisor holds the run.
HELD = frozenset({State.STARTING, State.RUNNING, State.PAUSED})
# Nobody holds the run and it has not ended.
IDLE = frozenset({State.DRAFT, State.QUEUED, State.LOST})
TRANSITIONS: dict[str, frozenset[str]] = {
    State.DRAFT: frozenset({State.QUEUED, State.STOPPED}),
    State.QUEUED: frozenset({State.STARTING, State.STOPPED, State.FAILED}),
    State.STARTING: frozenset({State.RUNNING, State.QUEUED, State.LOST, *TERMINAL}),
    State.RUNNING: frozenset({State.PAUSED, State.QUEUED, State.LOST, *TERMINAL}),
    State.PAUSED: frozenset({State.RUNNING, State.QUEUED, State.LOST, *TERMINAL}),
    State.LOST: frozenset({State.QUEUED, State.FAILED, State.STOPPED}),
    **{state: frozenset() for state in TERMINAL},
}


class Sweep(models.Model):
    """Runs launched together to be compared."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sweeps")
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = OwnedQuerySet["Sweep"].as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("runs:sweep_detail", args=[self.pk])


class RunQuerySet(OwnedQuerySet["Run"]):
    def held_by(self, run_id: uuid.UUID, attempt: int) -> RunQuerySet:
        """The run while this attempt owns it, as a query of one row or none: the fence of every later write."""
        return self.filter(pk=run_id, attempt=attempt, state__in=HELD)

    def in_queue(self) -> RunQuerySet:
        """Runs that wait for a worker, in the order they should start."""
        return self.filter(state=State.QUEUED, desired_state=Desire.RUN).order_by("-priority", "created_at", "pk")

    def claim(self, run_id: uuid.UUID, worker: Worker) -> Run | None:
        """Take a queued run and raise its attempt, by compare-and-swap; None where it was not to be had."""
        now = timezone.now()
        with transaction.atomic():
            # A run that has begun waits for the data folder that holds its spool and checkpoints.
            claimable = self.in_queue().filter(pk=run_id, data_folder__in=["", worker.data_folder])
            claimed = claimable.order_by().update(
                state=State.STARTING,
                attempt=F("attempt") + 1,
                worker_host=worker.host,
                worker_pid=worker.pid,
                worker_started=worker.started,
                data_folder=worker.data_folder,
                heartbeat_at=now,
                started_at=Coalesce("started_at", now),
                reason="",
            )
            if not claimed:
                return None
            run = self.get(pk=run_id)
            StatusChange.objects.create(
                run=run,
                from_state=State.QUEUED,
                to_state=State.STARTING,
                attempt=run.attempt,
                reason=f"claimed by {worker.host}",
                at=now,
            )
            return run


class Worker:
    """Who claims: a process on a host, and the data folder it works in."""

    def __init__(self, host: str, pid: int, started: float, data_folder: str) -> None:
        self.host = host
        self.pid = pid
        self.started = started
        self.data_folder = data_folder


class Run(models.Model):
    """One training job: what was asked, who works on it, how far it is."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="runs")
    name = models.CharField(max_length=120)
    sweep = models.ForeignKey(Sweep, on_delete=models.SET_NULL, null=True, blank=True, related_name="runs")
    group = models.ForeignKey(
        "registry.AgentGroup", on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    benchmark = models.ForeignKey(
        "registry.Benchmark", on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    spec = models.JSONField()  # workers.spec.RunSpec
    algorithm = models.CharField(max_length=32)
    seed = models.PositiveIntegerField()
    priority = models.IntegerField(default=0)

    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    desired_state = models.CharField(max_length=8, choices=Desire.choices, default=Desire.RUN)
    attempt = models.PositiveIntegerField(default=0)
    interruptions = models.PositiveIntegerField(default=0)
    reason = models.TextField(blank=True)

    worker_host = models.CharField(max_length=255, blank=True)
    worker_pid = models.PositiveIntegerField(null=True, blank=True)
    worker_started = models.FloatField(null=True, blank=True)  # tells a process from a later one with the same pid
    data_folder = models.CharField(max_length=64, blank=True)  # id of the data folder that holds the run directory
    heartbeat_at = models.DateTimeField(null=True, blank=True)

    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    last_seq = models.BigIntegerField(default=0)  # every event up to it is stored
    spool_offset = models.BigIntegerField(default=0)  # bytes of the spool that are stored
    texts_from = models.PositiveIntegerField(
        default=0
    )  # rollouts of earlier steps have lost their texts (retention.py)
    step = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField(default=0)
    progress = models.JSONField(default=dict, blank=True)  # the last workers.events.Progress

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [
            models.Index(fields=["owner", "-created_at"], name="run_owner_created"),
            models.Index(fields=["-created_at"], name="run_created"),
            models.Index(fields=["state", "-priority", "created_at"], name="run_queue"),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("runs:run_detail", args=[self.pk])

    @property
    def run_dir(self) -> Path:
        return Path(settings.RUNS_DIR) / str(self.pk)

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def can_stop(self) -> bool:
        return not self.is_terminal and self.desired_state != Desire.STOP

    @property
    def agent_names(self) -> list[str]:
        return [agent["name"] for agent in self.spec["agents"]]

    def transition_to(self, new: str, *, reason: str, attempt: int | None = None, **columns: Any) -> bool:
        """Change state by one conditional UPDATE and record it; False where the state machine or the fence refuses.

        attempt: refuse unless this attempt owns the run.  columns: further columns to write with it.
        A run that its user wants stopped does not go back to the queue, where nobody would take it: it is stopped.
        """
        asked = State(new)
        now = timezone.now()
        with transaction.atomic():
            while True:
                seen = Run.objects.filter(pk=self.pk).values_list("state", "attempt", "desired_state").first()
                if seen is None:
                    return False
                old, old_attempt, wish = seen
                new = asked
                if asked == State.QUEUED and wish == Desire.STOP:
                    new, reason = State.STOPPED, USER_STOP
                if new not in TRANSITIONS[old] or attempt not in (None, old_attempt):
                    return False
                values = columns | {"state": new, "reason": reason} | ({"finished_at": now} if new in TERMINAL else {})
                unchanged = Run.objects.filter(pk=self.pk, state=old, attempt=old_attempt, desired_state=wish)
                if unchanged.update(**values):
                    break  # otherwise someone else changed it in between: look again
            if new not in HELD:
                self._forget_eta()
            StatusChange.objects.create(
                run_id=self.pk, from_state=old, to_state=new, attempt=old_attempt, reason=reason, at=now
            )
        self.refresh_from_db()
        return True

    def _forget_eta(self) -> None:
        """Nobody trains: no page says when it will be done. The row is locked by the change of state."""
        row = Run.objects.filter(pk=self.pk)
        progress = row.values_list("progress", flat=True).first()
        if progress and progress.pop("eta_s", None) is not None:
            row.update(progress=progress)

    def request_stop(self, reason: str = USER_STOP) -> None:
        """Ask for the run's end: at once where nobody holds it, else its supervisor sees to it."""
        # First the wish: from here on nobody can claim it.
        Run.objects.filter(pk=self.pk).exclude(state__in=TERMINAL).update(desired_state=Desire.STOP)
        self.refresh_from_db()
        while self.state in IDLE and not self.transition_to(State.STOPPED, reason=reason):
            self.refresh_from_db()

    def requeue(self, *, reason: str, attempt: int, is_interruption: bool) -> bool:
        """Back to the queue to go on from the last checkpoint; after three interruptions, failed."""
        if not is_interruption:
            return self.transition_to(State.QUEUED, reason=reason, attempt=attempt)
        if self.interruptions >= MAX_INTERRUPTIONS:
            text = f"interrupted {self.interruptions + 1} times, the last time: {reason}"
            return self.transition_to(State.FAILED, reason=text, attempt=attempt)
        return self.transition_to(State.QUEUED, reason=reason, attempt=attempt, interruptions=F("interruptions") + 1)


class StatusChange(models.Model):
    """One change of a run's state and why."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="status_changes")
    from_state = models.CharField(max_length=16, blank=True)
    to_state = models.CharField(max_length=16)
    attempt = models.PositiveIntegerField()
    reason = models.TextField(blank=True)
    at: models.DateTimeField[datetime, datetime] = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.from_state} -> {self.to_state}"


class OfRunQuerySet(models.QuerySet):
    """Rows that belong to a run are seen by whoever sees the run."""

    def visible_to(self, user: Any) -> OfRunQuerySet:
        if not user.is_authenticated:
            return self.none()
        return self.all() if user.is_staff else self.filter(run__owner=user)


class TelemetryEvent(models.Model):
    """One event of the spool, of any type but rollout and contribution."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events", db_index=False)
    seq = models.BigIntegerField()
    attempt = models.PositiveIntegerField()
    type = models.CharField(max_length=16)
    step = models.PositiveIntegerField(null=True)
    agent = models.CharField(max_length=80, blank=True)
    source = models.CharField(max_length=80, blank=True)
    payload = models.JSONField()  # the event's other fields
    time = models.FloatField()  # seconds since 1970

    objects = OfRunQuerySet.as_manager()

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_once")]
        indexes = [models.Index(fields=["run", "type", "agent", "source", "step"], name="event_metrics")]


class RolloutSample(models.Model):
    """workers.events.Rollout: one verified response."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="rollouts", db_index=False)
    seq = models.BigIntegerField()
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    agent = models.CharField(max_length=80)
    prompt_id = models.CharField(max_length=200)
    sample = models.PositiveIntegerField()
    prompt = models.TextField()
    completion = models.TextField()
    answer = models.TextField()
    reward = models.FloatField(null=True)
    finish_reason = models.CharField(max_length=16)
    num_tokens = models.PositiveIntegerField()
    mean_logp = models.FloatField(null=True)

    objects = OfRunQuerySet.as_manager()

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="rollout_once")]
        indexes = [models.Index(fields=["run", "step", "agent"], name="rollout_step_agent")]


class Contribution(models.Model):
    """workers.events.Contribution: what one rollout taught one learner."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="contributions", db_index=False)
    seq = models.BigIntegerField()
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    agent = models.CharField(max_length=80)
    source = models.CharField(max_length=80)
    prompt_id = models.CharField(max_length=200)
    sample = models.PositiveIntegerField()
    num_tokens = models.PositiveIntegerField()
    advantage = models.FloatField(null=True)
    sequence_ratio = models.FloatField(null=True)
    clipped_ratio = models.FloatField(null=True)
    clip_side = models.CharField(max_length=8)
    omega = models.FloatField(null=True)
    weight = models.FloatField(null=True)
    mini_batch = models.PositiveIntegerField(null=True)
    drop_reason = models.CharField(max_length=200, blank=True, null=True)

    objects = OfRunQuerySet.as_manager()

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="contribution_once")]
        indexes = [models.Index(fields=["run", "step", "agent", "source"], name="contribution_step_pair")]
