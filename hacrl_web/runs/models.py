"""The rows of a run: the job itself, its state machine, and what its trainer reported.

Status changes only through `Run.transition_to` and `Run.objects.claim`. Every write of a supervisor names its attempt,
the fencing token: it is refused once another attempt owns the run, or the run has ended.
"""

from __future__ import annotations

import time
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import Exists, F
from django.db.models.functions import Coalesce, Now
from django.urls import reverse
from django.utils import timezone

from hacrl_web.accounts.visibility import OwnedQuerySet

MAX_INTERRUPTIONS = 3
USER_STOP = "stopped by the user"
QUEUE_ORDER = ("-priority", "queue_key", "created_at", "pk")
GENERATED = "generated"  # stands in `data_folder` where nobody trained: ./hacrl seed_demo_data


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
    PAUSE = "pause"
    STOP = "stop"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.STOPPED})
# A supervisor holds the run.
HELD = frozenset({State.STARTING, State.RUNNING})
# Nobody holds the run and it has not ended.
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


class Sweep(models.Model):
    """Runs launched together to be compared."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sweeps")
    name = models.CharField(max_length=120)
    request = models.JSONField(default=dict, blank=True)  # what was asked for, as sweeps.py read it
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

    def left_by(self, run_id: uuid.UUID, attempt: int) -> RunQuerySet:
        """The run while nobody holds it and this attempt was its last: the fence of what is stored late."""
        return self.filter(pk=run_id, attempt=attempt, state__in=IDLE)

    def in_queue(self) -> RunQuerySet:
        """Runs that wait for a worker, in the order they should start."""
        return self.filter(state=State.QUEUED, desired_state=Desire.RUN).order_by(*QUEUE_ORDER)

    def claim(self, run_id: uuid.UUID, worker: Worker) -> Run | None:
        """Take a queued run and raise its attempt, by compare-and-swap; None where it was not to be had."""
        now = timezone.now()
        with transaction.atomic():
            # A run that has begun waits for the data folder that holds its spool and checkpoints.
            claimable = self.in_queue().filter(pk=run_id, data_folder__in=["", worker.data_folder])
            drained = Host.objects.filter(name=worker.host).exclude(drain=Drain.NO)
            claimable = claimable.filter(~Exists(drained))
            claimed = claimable.order_by().update(
                state=State.STARTING,
                attempt=F("attempt") + 1,
                worker_host=worker.host,
                worker_pid=worker.pid,
                worker_started=worker.started,
                worker_boot=worker.boot,
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

    def __init__(self, host: str, pid: int, started: float, data_folder: str, boot: str = "") -> None:
        self.host = host
        self.pid = pid
        self.started = started
        self.data_folder = data_folder
        self.boot = boot


_SEEN = ("state", "attempt", "desired_state", "desire_reason")


class Run(models.Model):
    """One training job: what was asked, who works on it, how far it is."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="runs")
    name = models.CharField(max_length=120)
    sweep = models.ForeignKey(Sweep, on_delete=models.SET_NULL, null=True, blank=True, related_name="runs")
    variant = models.CharField(max_length=120, blank=True)  # its row in the sweep, see variants.Variant.label
    group = models.ForeignKey(
        "registry.AgentGroup", on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    benchmark = models.ForeignKey(
        "registry.Benchmark", on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    spec = models.JSONField()  # workers.spec.RunSpec
    algorithm = models.CharField(max_length=32)
    seed = models.PositiveIntegerField()
    retry_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="retries")
    # Whose settings it began with on the form, to be compared with.
    cloned_from = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="clones")
    priority = models.IntegerField(default=0)
    queue_key = models.FloatField(default=time.time)  # order within a priority

    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    desired_state = models.CharField(max_length=8, choices=Desire.choices, default=Desire.RUN)
    desire_reason = models.TextField(blank=True)  # who wants it paused or stopped, and why
    attempt = models.PositiveIntegerField(default=0)
    interruptions = models.PositiveIntegerField(default=0)
    reason = models.TextField(blank=True)

    worker_host = models.CharField(max_length=255, blank=True)
    worker_pid = models.PositiveIntegerField(null=True, blank=True)
    # Seconds since the host's boot: tells a process from a later one with the same pid.
    worker_started = models.FloatField(null=True, blank=True)
    worker_boot = models.CharField(max_length=64, blank=True)  # of the host, which has restarted if it has another
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
    packed_seq = models.BigIntegerField(default=0)  # metrics up to it are in chunks too (chunks.py)
    step = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField(default=0)
    progress = models.JSONField(default=dict, blank=True)  # the last workers.events.Progress

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [
            models.Index(fields=["owner", "-created_at"], name="run_owner_created"),
            models.Index(fields=["-created_at"], name="run_created"),
            models.Index(fields=["state", "-priority", "queue_key"], name="run_queue"),
            models.Index(fields=["state", "-finished_at"], name="run_finished"),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("runs:run_detail", args=[self.pk])

    @property
    def run_dir(self) -> Path:
        return Path(settings.RUNS_DIR) / str(self.pk)

    @property
    def is_generated(self) -> bool:
        """True where its numbers are made up by seed_demo_data: there is no run directory, on no host."""
        return self.data_folder == GENERATED

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def can_stop(self) -> bool:
        return not self.is_terminal and self.desired_state != Desire.STOP

    @property
    def can_pause(self) -> bool:
        return (
            self.desired_state == Desire.RUN and not self.is_terminal and self.state not in (State.DRAFT, State.PAUSED)
        )

    @property
    def can_resume(self) -> bool:
        """Also while the pause is not reached yet: then it is taken back."""
        return self.desired_state == Desire.PAUSE and not self.is_terminal

    @property
    def waits_for_host(self) -> str:
        """The host that holds the files of a run that has begun: it goes on there, or where the folder is shared."""
        return self.worker_host if self.state in (State.QUEUED, State.LOST) and self.data_folder else ""

    @property
    def agent_names(self) -> list[str]:
        return [agent["name"] for agent in self.spec["agents"]]

    @property
    def is_evaluation_only(self) -> bool:
        """True where nobody learns: every agent is evaluated once."""
        return bool(self.spec.get("training", {}).get("steps") == 0)

    @property
    def further_benchmarks(self) -> frozenset[str]:
        """Names of the benchmarks that its evaluations ask beside its own, which charts and boards show."""
        return frozenset(one["benchmark"] for one in self.spec.get("evaluation", {}).get("benchmarks", ()))

    def transition_to(self, new: str, *, reason: str, attempt: int | None = None, **columns: Any) -> bool:
        """Change state by one conditional UPDATE and record it; False where the state machine or the fence refuses.

        attempt: refuse unless this attempt owns the run.  columns: further columns to write with it.
        A run that its user wants stopped or paused does not go back to the queue, where nobody would take it: it is
        stopped or paused. A paused run stays so until somebody resumes it.
        """
        asked = State(new)
        now = timezone.now()
        with transaction.atomic():
            while True:
                seen = Run.objects.filter(pk=self.pk).values_list(*_SEEN).first()
                if seen is None:
                    return False
                old, old_attempt, wish, wish_reason = seen
                new, why = asked, reason
                if asked in (State.QUEUED, State.PAUSED) and wish == Desire.STOP:
                    new, why = State.STOPPED, wish_reason or USER_STOP
                elif asked == State.QUEUED and wish == Desire.PAUSE:
                    new, why = State.PAUSED, f"{wish_reason}; {reason}"
                if new not in TRANSITIONS[old] or attempt not in (None, old_attempt):
                    return False
                values = columns | {"state": new, "reason": why} | ({"finished_at": now} if new in TERMINAL else {})
                if new == State.PAUSED:
                    values["desired_state"] = Desire.PAUSE
                unchanged = Run.objects.filter(pk=self.pk, state=old, attempt=old_attempt, desired_state=wish)
                if unchanged.update(**values):
                    break  # otherwise someone else changed it in between: look again
            if new not in HELD:
                self._forget_eta()
            StatusChange.objects.create(
                run_id=self.pk, from_state=old, to_state=new, attempt=old_attempt, reason=why, at=now
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
        """Ask for the run's end: at once where nobody holds it, or by its supervisor. reason: who asks first.

        A run that was once lost is ended by the dispatcher: see Dispatcher.revive.
        """
        # First the wish: from here on nobody can claim it.
        stoppable = Run.objects.filter(pk=self.pk).exclude(state__in=TERMINAL).exclude(desired_state=Desire.STOP)
        stoppable.update(desired_state=Desire.STOP, desire_reason=reason)
        self.refresh_from_db()
        if self.was_lost:
            return
        while self.state in IDLE and not self.transition_to(State.STOPPED, reason=self.desire_reason or reason):
            self.refresh_from_db()

    @property
    def was_lost(self) -> bool:
        """True where a supervisor left it without a word: its spool may hold more than is stored."""
        return self.status_changes.filter(to_state=State.LOST).exists()

    def request_pause(self, reason: str) -> None:
        """Ask for a pause: at once where the run is queued, else after the step under way. reason: who and why."""
        pausable = Run.objects.filter(pk=self.pk, desired_state=Desire.RUN).exclude(state__in=[*TERMINAL, State.DRAFT])
        pausable.update(desired_state=Desire.PAUSE, desire_reason=reason)
        self.refresh_from_db()
        # A lost run is paused by the dispatcher, which counts the interruption.
        while self.state == State.QUEUED and self.desired_state == Desire.PAUSE:
            self.transition_to(State.PAUSED, reason=self.desire_reason)
            self.refresh_from_db()

    def request_resume(self, reason: str) -> None:
        """Back to the queue, to go on from the checkpoint; a pause that is not reached yet is taken back."""
        paused = Run.objects.filter(pk=self.pk, desired_state=Desire.PAUSE).exclude(state__in=TERMINAL)
        paused.update(desired_state=Desire.RUN, desire_reason="")
        self.refresh_from_db()
        while self.state == State.PAUSED and self.desired_state == Desire.RUN:
            self.transition_to(State.QUEUED, reason=reason)
            self.refresh_from_db()

    @property
    def will_end(self) -> bool:
        """True where an interruption is its end, since its user wants that or it was interrupted too often."""
        return self.desired_state == Desire.STOP or self.interruptions >= MAX_INTERRUPTIONS

    def requeue(self, *, reason: str, attempt: int, is_interruption: bool) -> bool:
        """Back to the queue to go on from the last checkpoint; after three interruptions, failed."""
        if not is_interruption:
            return self.transition_to(State.QUEUED, reason=reason, attempt=attempt)
        if self.interruptions >= MAX_INTERRUPTIONS:
            text = f"interrupted {self.interruptions + 1} times, the last time: {reason}"
            return self.transition_to(State.FAILED, reason=text, attempt=attempt)
        return self.transition_to(State.QUEUED, reason=reason, attempt=attempt, interruptions=F("interruptions") + 1)


class Drain(models.TextChoices):
    """Whether a host takes runs."""

    NO = "no"  # it does
    FINISH = "finish"  # no new ones; those under way train to their end
    NOW = "now"  # none at all: those under way are checkpointed after their step and go back to the queue


class HostQuerySet(models.QuerySet["Host"]):
    def with_now(self) -> HostQuerySet:
        """Each host with the database's time, `now`: the clock that wrote when it was last seen."""
        return self.annotate(now=Now())


class Host(models.Model):
    """A machine that trains: written by its worker's heartbeat (hosts.py), drained by people."""

    name = models.CharField(max_length=255, unique=True)
    data_folder = models.CharField(max_length=64, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)  # another one after each restart of the machine
    # By the database's clock, so that hosts can be compared, whatever their own clocks say.
    last_seen = models.DateTimeField(null=True, blank=True)
    clock_offset_s = models.FloatField(null=True, blank=True)  # its clock minus the database's
    schema = models.CharField(max_length=120, blank=True)  # newest migration its code knows
    versions = models.JSONField(default=dict, blank=True)  # package -> version
    devices = models.JSONField(default=list, blank=True)  # [{"kind", "name", ...}]
    drain = models.CharField(max_length=8, choices=Drain.choices, default=Drain.NO)
    drain_reason = models.CharField(max_length=255, blank=True)  # who drained it and why

    objects = HostQuerySet.as_manager()

    now: datetime  # of with_now

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_drained(self) -> bool:
        return self.drain != Drain.NO

    @property
    def silent_s(self) -> float | None:
        """Seconds since it was last heard of, for hosts read with_now; None where it never was."""
        return None if self.last_seen is None else max(0.0, (self.now - self.last_seen).total_seconds())


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
    """One event of the spool, of any type that has no table of its own."""

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
        indexes = [
            models.Index(fields=["run", "type", "agent", "source", "step"], name="event_metrics"),
            models.Index(fields=["run", "type", "seq"], name="event_type_seq"),
        ]


class MetricChunk(models.Model):
    """Points of one metric of one attempt, packed: a copy of what events tell that is quicker to read (chunks.py)."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="metric_chunks", db_index=False)
    attempt = models.PositiveIntegerField()
    metric = models.CharField(max_length=200)
    agent = models.CharField(max_length=80)
    source = models.CharField(max_length=80, blank=True)
    place = models.PositiveIntegerField()  # of the metric within its events: the order of the columns
    first_step = models.PositiveIntegerField()
    last_step = models.PositiveIntegerField()
    count = models.PositiveIntegerField()
    packed = models.BinaryField()

    objects = OfRunQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["run", "metric", "agent", "source"], name="chunk_column")]


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
        indexes = [
            models.Index(fields=["run", "step", "agent", "prompt_id", "sample"], name="rollout_place"),
            models.Index(fields=["run", "attempt", "step", "seq"], name="rollout_order"),
        ]


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
    reward = models.FloatField(null=True)
    source_num_tokens = models.PositiveIntegerField(null=True)
    alpha = models.FloatField(null=True)
    capability = models.FloatField(null=True)
    source_capability = models.FloatField(null=True)

    objects = OfRunQuerySet.as_manager()

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="contribution_once")]
        indexes = [
            models.Index(fields=["run", "step", "agent", "source", "prompt_id"], name="contribution_place"),
            models.Index(fields=["run", "attempt", "step", "seq"], name="contribution_order"),
        ]


class QuestionChunk(models.Model):
    """workers.events.Questions: some of the questions that the evaluations of a run ask. Texts are JSON lists."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="question_chunks", db_index=False)
    seq = models.BigIntegerField()
    attempt = models.PositiveIntegerField()
    benchmark = models.CharField(max_length=120)
    first = models.PositiveIntegerField()
    ids = models.TextField()
    subjects = models.TextField()
    difficulties = models.TextField()
    answers = models.TextField()
    questions = models.TextField()

    objects = OfRunQuerySet.as_manager()

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="questions_once")]
        indexes = [models.Index(fields=["run", "benchmark", "first"], name="questions_place")]


class AnswerChunk(models.Model):
    """workers.events.Answers: what one agent answered to some questions in an evaluation. Texts are JSON lists.

    The responses stand last: whoever reads only marks does not read over them.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="answer_chunks", db_index=False)
    seq = models.BigIntegerField()
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    agent = models.CharField(max_length=80)
    benchmark = models.CharField(max_length=120)
    first = models.PositiveIntegerField()
    marks = models.TextField()
    majority = models.TextField()
    responses = models.TextField()

    objects = OfRunQuerySet.as_manager()

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="answers_once")]
        indexes = [models.Index(fields=["run", "benchmark", "step", "first"], name="answers_place")]
