"""Limits of a project's use of the installation, what its runs have used of GPUs, and how long it keeps them."""

from __future__ import annotations

from django.db import models

from hacrl_web.accounts.audit_log import AuditedQuerySet, audited
from hacrl_web.accounts.models import Project

_LIMIT = {"null": True, "blank": True}  # None: no limit


@audited("running", "waiting", "gpu_hours", "disk_gib", project="project_id")
class Quota(models.Model):
    """What a project may use; set by staff (runs/quotas.py)."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="quota")
    running = models.PositiveIntegerField(**_LIMIT)  # runs at once
    waiting = models.PositiveIntegerField(**_LIMIT)  # runs that are queued, paused or lost
    gpu_hours = models.FloatField(**_LIMIT)  # in a calendar month, UTC
    disk_gib = models.FloatField(**_LIMIT)  # files of its runs

    objects = AuditedQuerySet["Quota"].as_manager()

    def __str__(self) -> str:
        return f"of {self.project}"


@audited("checkpoint_days", "archived_days", project="project_id")
class Retention(models.Model):
    """After how many days files and runs of a project are removed; set by staff (runs/retention)."""

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
