"""Mirrors of a project: where the numbers of its runs are sent, and how far each run has been sent."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import audited
from hacrl_web.accounts.roles.visibility import ProjectRow, ProjectRowQuerySet
from hacrl_web.mirrors.kinds import KINDS
from hacrl_web.runs.models import TERMINAL, Run, RunRowQuerySet


class Sends(models.TextChoices):
    """The runs that a mirror sends."""

    NEW = "new", "every run from now on"
    CHOSEN = "chosen", "chosen runs only"


class Choice(models.TextChoices):
    """Whether a mirror sends one run."""

    DEFAULT = "default", "as the mirror says"
    ON = "on", "yes"
    OFF = "off", "no"


@audited("name", "kind", "options", "sends", "rollouts", "rollout_interval", "is_enabled", secrets=("ciphertext",))
class Mirror(ProjectRow):
    """A destination of a project's runs. kind: a key of kinds.KINDS."""

    section = "mirrors"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="mirrors")
    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=16)
    options: Any = models.JSONField(default=dict, blank=True)  # by name, those of its kind
    ciphertext = models.TextField(blank=True)  # of its key or password; empty without one
    sends = models.CharField(max_length=8, choices=Sends.choices, default=Sends.NEW)
    rollouts = models.PositiveIntegerField(default=0)  # of each agent, with their texts; 0: none leave
    rollout_interval = models.PositiveIntegerField(default=1)  # they are sent at the multiples of so many steps
    is_enabled = models.BooleanField(default=True)
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(default=timezone.now)
    silence = models.CharField(max_length=400, blank=True)  # the destination did not answer: no run is sent for a while

    objects = ProjectRowQuerySet["Mirror"].as_manager()

    class Meta:
        ordering = ["name", "pk"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="mirror_name_per_project")]

    def __str__(self) -> str:
        return self.name

    @property
    def secret_name(self) -> str:
        return f"secret of mirror {self.pk}"

    @property
    def sent_settings(self) -> tuple[Any, ...]:
        """The settings of the mirror. When they change, what is under way ends, and what failed is tried at once."""
        return self.options, self.ciphertext, self.sends, self.rollouts, self.rollout_interval

    @property
    def files(self) -> Path:
        """The files of the mirror, on the host of the watcher."""
        return Path(settings.DATA_DIR) / "mirrors" / f"{self.kind}-{self.pk}"

    def due_runs(self) -> QuerySet[Run]:
        """Runs with something to send, the oldest first."""
        cursors = MirrorCursor.objects.filter(mirror=self, run=OuterRef("pk"))
        is_chosen: Any = Exists(cursors.filter(choice=Choice.ON))
        if self.sends == Sends.NEW:
            is_chosen |= Q(created_at__gte=self.created_at) & ~Exists(cursors.filter(choice=Choice.OFF))
        is_sent = Exists(cursors.filter(seq__gte=OuterRef("last_seq")))
        runs = Run.objects.filter(is_chosen, project=self.project_id, last_seq__gt=0)
        runs = runs.exclude(Exists(cursors.filter(is_done=True))).filter(Q(state__in=TERMINAL) | ~is_sent)
        return runs.order_by("created_at", "pk")

    # What its page and the API say of it

    @property
    def label(self) -> str:
        return KINDS[self.kind].label

    @property
    def takes_secret(self) -> bool:
        return bool(KINDS[self.kind].secret)

    @property
    def has_secret(self) -> bool:
        return bool(self.ciphertext)

    @property
    def folder(self) -> str:
        """The folder of its files; empty for a server."""
        has_files = self.kind in ("tensorboard", "trackio") or self.options.get("mode") == "offline"
        return str(self.files) if has_files else ""

    @property
    def num_sent(self) -> int:
        return self.cursors.filter(sent_at__isnull=False).count()

    @property
    def num_failing(self) -> int:
        return self.cursors.exclude(problem="").count()

    @property
    def problem(self) -> str:
        """Why nothing is sent, or why some run is not; empty without one."""
        return self.silence or self.cursors.exclude(problem="").values_list("problem", flat=True).first() or ""


class MirrorCursor(models.Model):
    """How far a run has been sent by a mirror: it moves when the destination has accepted."""

    mirror = models.ForeignKey(Mirror, on_delete=models.CASCADE, related_name="cursors")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="mirror_cursors")
    choice = models.CharField(max_length=8, choices=Choice.choices, default=Choice.DEFAULT)
    seq = models.BigIntegerField(default=0)  # the destination has every number up to this event
    step = models.PositiveIntegerField(default=0)  # of the last row that was sent
    state: Any = models.JSONField(default=dict, blank=True)  # of the destination (workers/mirrors)
    url = models.CharField(max_length=500, blank=True)  # of the run there
    is_done = models.BooleanField(default=False)  # the run has ended, and all of it was sent
    problem = models.CharField(max_length=400, blank=True)  # of the last try, empty if it succeeded
    sent_at = models.DateTimeField(null=True, blank=True)

    objects = RunRowQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["mirror", "run"], name="mirror_cursor_once")]

    def __str__(self) -> str:
        return f"{self.run_id} by {self.mirror_id}"

    def move(self, **values: Any) -> None:
        """Store these columns; the others may have been changed meanwhile."""
        MirrorCursor.objects.filter(pk=self.pk).update(**values)
        for name, value in values.items():
            setattr(self, name, value)
