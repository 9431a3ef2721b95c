"""Limits of a project's use of the installation, what its runs have used of GPUs, and how long it keeps them."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import AuditedQuerySet, audited
from hacrl_web.accounts.models import Project

_LIMIT = {"null": True, "blank": True}  # None: no limit
MORE = "or ask the staff of this installation for a larger quota"


@audited("running", "waiting", "gpu_hours", "disk_gib", project="project_id")
class Quota(models.Model):
    """What a project may use; set by staff (runs/limits)."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="quota")
    running = models.PositiveIntegerField(**_LIMIT)  # runs at once
    waiting = models.PositiveIntegerField(**_LIMIT)  # runs that are queued, paused or lost
    gpu_hours = models.FloatField(**_LIMIT)  # in a calendar month, UTC
    disk_gib = models.FloatField(**_LIMIT)  # files of its runs

    objects = AuditedQuerySet["Quota"].as_manager()

    def __str__(self) -> str:
        return f"of {self.project}"

    def gpu_hours_refusal(self) -> str:
        """Why no run of the project may begin this month; empty if it may."""
        if self.gpu_hours is None or (used := GpuUse.hours_of(self.project_id)) < self.gpu_hours:
            return ""
        text = (
            f"Project “{self.project}” has used {used:,.1f} of its {self.gpu_hours:,.1f} GPU hours of this month (UTC)"
        )
        return f"{text}: wait for the next month, {MORE}."


@audited("checkpoint_days", "archived_days", project="project_id")
class Retention(models.Model):
    """The days after which files and runs of a project are removed; staff set them (runs/limits)."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="retention")
    checkpoint_days = models.PositiveIntegerField(**_LIMIT)  # after the end of a run: its checkpoints
    archived_days = models.PositiveIntegerField(**_LIMIT)  # after it was archived: the run itself

    objects = AuditedQuerySet["Retention"].as_manager()

    def __str__(self) -> str:
        return f"of {self.project}"


class GpuUse(models.Model):
    """The GPUs that one attempt of a run held, and how long. It outlives the run, so that deleting frees no hours."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    run_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    gpus = models.FloatField()
    from_at = models.DateTimeField()
    until_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run_id", "attempt"], name="gpu_use_once")]
        indexes = [models.Index(fields=["project", "until_at"], name="gpu_use_project")]

    @classmethod
    def hours_of(cls, project_id: int, now: datetime | None = None) -> float:
        """GPUs times hours of all attempts since the month began, UTC."""
        begin = (now or timezone.now()).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        uses = cls.objects.filter(project=project_id, until_at__gt=begin).values_list("gpus", "from_at", "until_at")
        return sum(gpus * (until - max(begin, start)).total_seconds() for gpus, start, until in uses) / 3600
