"""The run, its sweep and its history. How a run changes its state is in states.py.

Every write of a supervisor names its attempt, the fencing token: it is refused once another attempt owns the run, or
the run has ended.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import Exists, F, Q
from django.db.models.functions import Coalesce
from django.urls import reverse
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import audited
from hacrl_web.accounts.roles.visibility import ProjectRow, ProjectRowQuerySet
from hacrl_web.runs.models.hosts import Drain, Host
from hacrl_web.runs.models.limits import Quota
from hacrl_web.runs.models.states import HELD, IDLE, Desire, RunStateMachine, State
from hacrl_web.runs.models.trials import SearchState
from workers.contract.verifier_kinds import score_word

QUEUE_ORDER = ("-priority", "queue_key", "created_at", "pk")
_OPTIONAL: Any = {"on_delete": models.SET_NULL, "null": True, "blank": True}
GENERATED = "generated"  # the `data_folder` of runs without a trainer: tools/generated_runs


@audited("name", "request")
class Sweep(ProjectRow):
    """Runs launched together to be compared."""

    section = "sweeps"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sweeps")
    name = models.CharField(max_length=120)
    request = models.JSONField(default=dict, blank=True)  # as runs/sweeps read it
    draft_digest = models.CharField(max_length=64, blank=True, default="")  # of a draft, see launch.plan
    # Of one that searches: what the dispatcher does with it (models/trials.py), and why it stopped.
    search_state = models.CharField(max_length=12, blank=True, default="", db_index=True)
    search_reason = models.TextField(blank=True, default="")
    # How much each setting mattered, see trials/importance.py; null before the dispatcher has counted the trials.
    importance: Any = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ProjectRowQuerySet["Sweep"].as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_draft(self) -> bool:
        """True while it is saved settings without runs."""
        return bool(self.draft_digest)

    @property
    def is_searching(self) -> bool:
        """True while further trials may follow."""
        return self.search_state in (SearchState.SEARCHING, SearchState.PAUSED)

    def get_absolute_url(self) -> str:
        return reverse("runs:sweep_detail", args=[self.pk])


@dataclass(frozen=True)
class Worker:
    """The process that claims a run, its host and the data folder it works in."""

    host: str
    pid: int
    started: float  # seconds since the host's boot
    data_folder: str
    boot: str = ""  # id of the host's boot
    namespace: str = ""  # in which the pid counts (hosts.pid_namespace)


class RunQuerySet(ProjectRowQuerySet["Run"]):
    def held_by(self, run_id: uuid.UUID, attempt: int) -> RunQuerySet:
        """The run while this attempt owns it, as a query of at most one row: the fence of every later write."""
        return self.filter(pk=run_id, attempt=attempt, state__in=HELD)

    def idle_after(self, run_id: uuid.UUID, attempt: int) -> RunQuerySet:
        """The run while it is idle and this attempt was its last: the fence of what is stored late."""
        return self.filter(pk=run_id, attempt=attempt, state__in=IDLE)

    def in_queue(self) -> RunQuerySet:
        """Runs that wait for a worker, in the order of their start."""
        return self.filter(state=State.QUEUED, desired_state=Desire.RUN).order_by(*QUEUE_ORDER)

    def tagged(self, tag: str) -> RunQuerySet:
        """Runs with this tag, in upper or lower case."""
        return self.filter(tags__contains=f",{tag.strip().lower()},")

    def named(self, words: str) -> RunQuerySet:
        """Runs with these words in their name or their sweep's; all without words."""
        words = words.replace("\x00", "")
        return self.filter(Q(name__icontains=words) | Q(sweep__name__icontains=words)) if words else self

    def claim(self, run_id: uuid.UUID, worker: Worker) -> Run | None:
        """Take a queued run and raise its attempt, by compare-and-swap; None if this worker cannot have it."""
        now = timezone.now()
        with transaction.atomic():
            if not self._has_free_place(run_id):
                return None
            drained = Host.objects.filter(name=worker.host).exclude(drain=Drain.NO)
            # A run that has begun waits for the data folder that holds its spool and checkpoints.
            claimable = self.in_queue().filter(~Exists(drained), pk=run_id, data_folder__in=["", worker.data_folder])
            claimed = claimable.order_by().update(
                state=State.STARTING,
                attempt=F("attempt") + 1,
                worker_host=worker.host,
                worker_pid=worker.pid,
                worker_started=worker.started,
                worker_boot=f"{worker.boot} {worker.namespace}".rstrip(),
                data_folder=worker.data_folder,
                heartbeat_at=now,
                started_at=Coalesce("started_at", now),
                reason="",
            )
            if not claimed:
                return None
            run = self.get(pk=run_id)
            run.status_changes.create(
                from_state=State.QUEUED,
                to_state=State.STARTING,
                attempt=run.attempt,
                reason=f"claimed by {worker.host}",
                at=now,
            )
            return run

    def _has_free_place(self, run_id: uuid.UUID) -> bool:
        """Whether its project may run one more; other claims of the project wait until this transaction ends."""
        quotas = Quota.objects.select_for_update(of=("self",)).exclude(running=None)
        quota = quotas.filter(project__in=self.filter(pk=run_id).order_by().values("project")).first()
        return quota is None or not self.start_refusal(quota)

    def start_refusal(self, quota: Quota) -> str:
        """Why a waiting run of the quota's project does not begin now; empty if it may."""
        running = self.filter(project=quota.project_id, state__in=HELD).count()
        if quota.running is not None and running >= quota.running:
            return f"Project “{quota.project}” may run {quota.running:,} at once, and {running:,} run now."
        return quota.gpu_hours_refusal()

    def startable(self) -> RunQuerySet:
        """The queue without the runs of projects whose quota lets none begin now."""
        quotas = Quota.objects.exclude(running=None, gpu_hours=None).select_related("project")
        return self.in_queue().exclude(project__in=[one.project_id for one in quotas if self.start_refusal(one)])


class _KeptRuns(models.Manager["Run"]):
    """The runs without deleted ones, whose rows are still in `Run._base_manager`."""

    def get_queryset(self) -> models.QuerySet[Run]:
        return super().get_queryset().filter(deleted_at=None)


@audited("name", "sweep", "group", "benchmark", "algorithm", "seed", "priority", "queue_key", "state", "desired_state",
         "desire_reason", "reason", "tags", "notes", "archived_at")  # fmt: skip
class Run(RunStateMachine, ProjectRow):
    """One training job: its settings, who trains it, how far it is."""

    section = "runs"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="runs")
    name = models.CharField(max_length=120)
    sweep = models.ForeignKey(Sweep, related_name="runs", **_OPTIONAL)
    variant = models.CharField(max_length=120, blank=True)  # its row in the sweep, see variants.Variant.label
    group = models.ForeignKey("registry.AgentGroup", related_name="runs", **_OPTIONAL)
    benchmark = models.ForeignKey("registry.Benchmark", related_name="runs", **_OPTIONAL)
    spec = models.JSONField()  # workers.contract.spec.run.RunSpec
    # Settings of agents that differ from those of the group, as a launch request has them (launch/agent_changes.py).
    agent_changes: Any = models.JSONField(default=dict, blank=True)
    algorithm = models.CharField(max_length=32)
    seed = models.PositiveIntegerField()
    retry_of = models.ForeignKey("self", related_name="retries", **_OPTIONAL)
    # The run whose settings the form began with.
    cloned_from = models.ForeignKey("self", related_name="clones", **_OPTIONAL)
    # Above 0: the step of that run's checkpoint, which was copied into its folder.
    start_step = models.PositiveIntegerField(default=0)
    priority = models.IntegerField(default=0)
    queue_key = models.FloatField(default=time.time)  # order within a priority

    worker_host = models.CharField(max_length=255, blank=True)
    worker_pid = models.PositiveIntegerField(null=True, blank=True)
    worker_started = models.FloatField(null=True, blank=True)  # a later process with the same pid has another value
    # The host's boot and, after a space, the namespace of the pid: the latter is missing in claims of older versions.
    worker_boot = models.CharField(max_length=64, blank=True)
    data_folder = models.CharField(max_length=64, blank=True)  # id of the data folder that holds the run directory
    heartbeat_at = models.DateTimeField(null=True, blank=True)

    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)

    last_seq = models.BigIntegerField(default=0)  # every event up to it is stored
    spool_offset = models.BigIntegerField(default=0)  # bytes of the spool that are stored
    # Of the batch that was stored last: the age of its oldest event at that moment.
    telemetry_lag_s = models.FloatField(null=True, blank=True)
    num_incidents = models.PositiveIntegerField(default=0)  # events that name an incident
    num_refused = models.PositiveIntegerField(default=0)  # events in whose place a warning was stored
    texts_from = models.PositiveIntegerField(default=0)  # first step whose rollouts have texts (table_upkeep.py)
    packed_seq = models.BigIntegerField(default=0)  # metrics up to it are in chunks too (metric_series.py)
    step = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField(default=0)
    files_bytes = models.BigIntegerField(null=True, blank=True)  # of its folder, as last measured (worker/usage.py)
    # Its checkpoints, once retention has removed them: when, and after how many days (runs/run_files.py).
    files_removed_at = models.DateTimeField(null=True, blank=True)
    files_removed_days = models.PositiveIntegerField(null=True, blank=True)
    # The newest held-out accuracy of all its agents, their mean (telemetry/scores.py); lists are sorted by it.
    score = models.FloatField(null=True, blank=True)

    deleted_at = models.DateTimeField(null=True, blank=True)  # what it leaves is being removed (archive/deletion.py)
    # What users write on it (labels.py). Tags lie between commas, ",best,lr sweep,": a filter finds whole ones.
    tags = models.CharField(max_length=450, blank=True)
    notes = models.TextField(blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)  # lists leave it out (runs/archive)
    # Of a run of another installation (insight/bundle): when and by whom it was imported, and its owner there.
    origin: Any = models.JSONField(default=dict, blank=True)

    objects = _KeptRuns.from_queryset(RunQuerySet)()

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [
            models.Index(fields=["project", "-created_at"], name="run_project_created"),
            models.Index(fields=["-created_at"], name="run_created"),
            models.Index(fields=["state", "-priority", "queue_key"], name="run_queue"),
            models.Index(fields=["state", "-finished_at"], name="run_finished"),
            # What lists count and offer, without the wide rows.
            models.Index(fields=["project", "deleted_at", "archived_at", "state", "tags"], name="run_counts"),
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
        """True if tools/generated_runs made up its numbers: it has no run directory."""
        return self.data_folder == GENERATED

    @property
    def is_draft(self) -> bool:
        return self.state == State.DRAFT

    @property
    def is_imported(self) -> bool:
        return bool(self.origin)

    @property
    def import_id(self) -> str:
        """Tells two imports of the same run apart; empty for a run that was not imported."""
        return str(self.origin.get("import_id", ""))

    @property
    def waits_for_host(self) -> str:
        """The host that holds the files of a run that has begun: it continues there, or where the folder is shared."""
        return self.worker_host if self.state in (State.QUEUED, State.LOST) and self.data_folder else ""

    @property
    def network_functions(self) -> list[str]:
        """The reward functions that could use the network in any attempt, so that it cannot be repeated exactly."""
        if not _names_function(self.spec):
            return []
        recorded = self.events.filter(type="started").values_list("payload__versions__network", flat=True)
        return sorted({label for labels in recorded if labels for label in str(labels).split(", ")})

    @property
    def tag_list(self) -> list[str]:
        return [tag for tag in self.tags.split(",") if tag]

    @property
    def agent_names(self) -> list[str]:
        return [agent["name"] for agent in self.spec["agents"]]

    @property
    def is_evaluation_only(self) -> bool:
        """True if no agent learns: each is evaluated once."""
        return bool(self.spec.get("training", {}).get("steps") == 0)

    @property
    def rollout_engine(self) -> str:
        """The engine of the settings; if they leave it to the machine, the newest trainer's choice, before it auto."""
        engine = str(self.spec.get("rollout", {}).get("engine", "transformers"))
        if engine != "auto":
            return engine
        started = self.events.filter(type="started").order_by("-seq").values_list("payload", flat=True).first() or {}
        return str(started.get("settled", {}).get("rollout", {}).get("engine", engine))

    @property
    def score_word(self) -> str:
        """The word for the run's mean over held-out answers: accuracy, or mean reward."""
        return score_word([self.spec.get("data", {}).get("verifier", "math")])

    @property
    def further_benchmarks(self) -> frozenset[str]:
        """The names of further benchmarks on which the run is evaluated, which charts and boards show."""
        return frozenset(one["benchmark"] for one in self.spec.get("evaluation", {}).get("benchmarks", ()))


class StatusChange(models.Model):
    """One change of a run's state, with the reason."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="status_changes")
    from_state = models.CharField(max_length=16, blank=True)
    to_state = models.CharField(max_length=16)
    attempt = models.PositiveIntegerField()
    reason = models.TextField(blank=True)
    at: models.DateTimeField[datetime, datetime] = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["pk"]


def _names_function(spec: Mapping[str, Any]) -> bool:
    """Whether the settings of a run name a reward function; those of old versions may lack any of them."""
    further = [*spec.get("training", {}).get("benchmarks", ()), *spec.get("evaluation", {}).get("benchmarks", ())]
    terms = spec.get("rewards", {}).get("terms", ())
    benchmarks = [spec.get("data", {}), *further]
    return any(one.get("reward_function") for one in benchmarks) or any(term.get("function") for term in terms)
