"""The row of a machine that trains: when it was last seen, what it has, and whether it takes runs."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models.functions import Now

from hacrl_web.accounts.audit_log import AuditedQuerySet, audited


class Drain(models.TextChoices):
    """Whether a host takes runs."""

    NO = "no"  # it does
    FINISH = "finish"  # no new ones; those under way train to their end
    NOW = "now"  # none at all: those under way are checkpointed after their step and go back to the queue


class HostQuerySet(AuditedQuerySet["Host"]):
    def with_now(self) -> HostQuerySet:
        """Each host with the database's time, `now`: the clock that wrote when it was last seen."""
        return self.annotate(now=Now())


@audited("name", "drain", "drain_reason", project="")
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
