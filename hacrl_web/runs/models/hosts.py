"""A machine that trains: when it was last seen, its devices, and whether it takes runs."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models.functions import Now

from hacrl_web.accounts.audit.audit_log import AuditedQuerySet, audited

SILENT_S = 30.0  # after so long without a heartbeat, pages call a host silent


class Drain(models.TextChoices):
    """Whether a host takes runs."""

    NO = "no"  # it takes runs
    FINISH = "finish"  # no new runs; those under way train to their end
    NOW = "now"  # no runs at all: those under way are saved after their step and return to the queue


class HostQuerySet(AuditedQuerySet["Host"]):
    def with_now(self) -> HostQuerySet:
        """Each host with `now`, the time by the database's clock, which also wrote `last_seen`."""
        return self.annotate(now=Now())


@audited("name", "drain", "drain_reason", project="")
class Host(models.Model):
    """A machine that trains: written by its worker's heartbeat (hosts.py), drained by people."""

    name = models.CharField(max_length=255, unique=True)
    data_folder = models.CharField(max_length=64, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)  # changes with each restart of the machine
    # By the database's clock, so that hosts can be compared whatever their own clocks show.
    last_seen = models.DateTimeField(null=True, blank=True)
    clock_offset_s = models.FloatField(null=True, blank=True)  # its clock minus the database's
    schema = models.CharField(max_length=120, blank=True)  # newest migration of its code
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
    def full_disk(self) -> str:
        """The sentence about a full disk, with which the host takes no runs; else empty."""
        return next((device.get("full", "") for device in self.devices if device.get("kind") == "disk"), "")

    @property
    def silent_s(self) -> float | None:
        """Seconds since its last heartbeat, for hosts read with_now; None before the first."""
        return None if self.last_seen is None else max(0.0, (self.now - self.last_seen).total_seconds())

    @property
    def is_silent(self) -> bool:
        """Whether its heartbeat has stopped or never came, for hosts read with_now."""
        return self.silent_s is None or self.silent_s > SILENT_S
