"""Alerts of runs, how far each run was evaluated, notification settings, and the messages sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from pydantic import ValidationError

from hacrl_web.accounts.audit.audit_log import audited
from hacrl_web.accounts.models import User
from hacrl_web.alerts.rules.remedies import Remedy
from hacrl_web.alerts.rules.table import BY_KIND, Rule
from hacrl_web.registry.agent_groups.agent_changes import text_of_changes
from hacrl_web.runs.models import Run, RunRowQuerySet, StatusChange
from hacrl_web.runs.storage.stored_spec import readable_spec
from workers.contract.spec.run import RunSpec

ENDED = "the run ended"


@lru_cache(maxsize=64)
def _spec_of(run_id: UUID) -> RunSpec | None:
    """The settings of a run that has begun, which do not change any more; None if this version cannot read them."""
    try:
        return readable_spec(Run.objects.values_list("spec", flat=True).get(pk=run_id))
    except (ValidationError, Run.DoesNotExist):
        return None


class Alert(models.Model):
    """An alert of a run: open from the step that raised it to the step that cleared it, or to the end of the run."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="alerts")
    kind = models.CharField(max_length=32)  # of rules.RULES
    agent = models.CharField(max_length=80)
    source = models.CharField(max_length=80, blank=True)
    attempt = models.PositiveIntegerField()
    number = models.FloatField()  # what the rule measured when it raised the alert
    text = models.TextField()
    raised_seq = models.BigIntegerField()  # of the event that ended the step
    raised_step = models.PositiveIntegerField()
    raised_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()  # when that step ended
    cleared_step = models.PositiveIntegerField(null=True, blank=True)
    cleared_at: models.DateTimeField[datetime | None, datetime | None] = models.DateTimeField(null=True, blank=True)
    cleared_reason = models.CharField(max_length=200, blank=True)

    objects = RunRowQuerySet.as_manager()

    class Meta:
        ordering = ["-raised_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["run", "kind", "agent", "source", "raised_seq"], name="alert_once")
        ]
        indexes = [
            models.Index(fields=["-raised_at"], name="alert_raised"),
            models.Index(fields=["run"], condition=Q(cleared_at=None), name="alert_open"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.agent}"

    @property
    def is_open(self) -> bool:
        return self.cleared_at is None

    @property
    def ended_with_run(self) -> bool:
        """Closed because the run ended, not because its number was better again."""
        return self.cleared_reason.startswith(ENDED)

    @property
    def rule(self) -> Rule | None:
        return BY_KIND.get(self.kind)

    @property
    def title(self) -> str:
        return self.rule.title if self.rule else self.kind

    @property
    def advice(self) -> str:
        return self.rule.advice if self.rule else ""

    @property
    def fix_url(self) -> str:
        """The new-run form with a clone of the run that has the remedy; empty where no setting clearly helps."""
        if self.remedy is None:
            return ""
        query = {**self.remedy.settings}
        if self.remedy.agents:
            query["agents"] = text_of_changes(self.remedy.agents)
        return f"{reverse('runs:run_clone', args=[self.run_id])}?{urlencode(query)}"

    @property
    def fix(self) -> str:
        """The change of `fix_url` in words; empty without one."""
        return "" if self.remedy is None else self.remedy.label

    @cached_property
    def remedy(self) -> Remedy | None:
        """The change of settings that its rule proposes for this run; None where there is none."""
        spec = _spec_of(self.run_id) if self.rule and self.rule.remedy else None
        return self.rule.remedy(spec, self.agent) if spec and self.rule and self.rule.remedy else None

    def get_absolute_url(self) -> str:
        """The chart that shows it."""
        page = reverse("runs:run_detail", args=[self.run_id])
        return f"{page}#chart-{self.rule.chart}" if self.rule else page


@dataclass(frozen=True)
class AlertCause:
    """Alerts of one run, one kind and one state: one row of the list. The newest is first."""

    alerts: tuple[Alert, ...]

    @property
    def newest(self) -> Alert:
        return self.alerts[0]

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last step at which one of them was raised."""
        steps = [alert.raised_step for alert in self.alerts]
        return min(steps), max(steps)


def by_cause(alerts: Iterable[Alert]) -> list[AlertCause]:
    """Alerts of one run, kind and state together, in the order of the newest of each."""
    groups: dict[tuple[Any, ...], list[Alert]] = {}
    for alert in alerts:
        groups.setdefault((alert.run_id, alert.kind, alert.is_open, alert.ended_with_run), []).append(alert)
    return [AlertCause(tuple(group)) for group in groups.values()]


class Cursor(models.Model):
    """How far a run's metrics have been evaluated, and the state of its rules."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="alert_cursor")
    seq = models.BigIntegerField(default=0)
    state = models.JSONField(default=dict)  # of apply_rules.step_changes
    is_done = models.BooleanField(default=False, db_index=True)  # the run has ended and all of it is evaluated


@audited("email_enabled", "email", "webhook_enabled", "on_alert", "on_cleared", "on_failed", "on_lost", "on_completed",
         secrets=["webhook_url"], project="")  # fmt: skip
class NotificationSettings(models.Model):
    """Which events of a user's own runs are sent, and where. Both channels are off until the user turns one on."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="notification_settings"
    )
    email_enabled = models.BooleanField(default=False)
    email = models.EmailField(blank=True)
    webhook_enabled = models.BooleanField(default=False)
    webhook_url = models.URLField(max_length=500, blank=True)
    on_alert = models.BooleanField(default=True)
    on_cleared = models.BooleanField(default=False)
    on_failed = models.BooleanField(default=True)
    on_lost = models.BooleanField(default=True)
    on_completed = models.BooleanField(default=False)
    saved_at = models.DateTimeField(auto_now=True)  # earlier events are not sent

    def __str__(self) -> str:
        return f"of {self.user}"

    @classmethod
    def of(cls, user: User) -> NotificationSettings:
        """The user's row; without one, an unsaved row with the defaults."""
        return cls.objects.filter(user=user).first() or cls(user=user, email=user.email)

    @property
    def addresses(self) -> dict[str, str]:
        """Channel -> address, of the channels that are on."""
        by_channel = {
            Channel.EMAIL: self.email_enabled and self.email,
            Channel.WEBHOOK: self.webhook_enabled and self.webhook_url,
        }
        return {str(channel): address for channel, address in by_channel.items() if address}


class Channel(models.TextChoices):
    EMAIL = "email"
    WEBHOOK = "webhook"


class DeliveryState(models.TextChoices):
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"
    SKIPPED = "skipped"


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def visible_to(self, user: User) -> DeliveryQuerySet:
        """The user's own: not even staff see the addresses of others."""
        return self.filter(user=user) if user.is_authenticated else self.none()


class Delivery(models.Model):
    """One message to one address: waiting, sent, failed or skipped, with the reason."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="deliveries")
    key = models.CharField(max_length=200, unique=True)  # of the event and the channel: one message each
    channel = models.CharField(max_length=8, choices=Channel.choices)
    target = models.CharField(max_length=500)
    alert = models.ForeignKey(Alert, on_delete=models.SET_NULL, null=True, related_name="deliveries")
    change = models.ForeignKey(StatusChange, on_delete=models.SET_NULL, null=True, related_name="deliveries")
    subject = models.CharField(max_length=200)
    body = models.JSONField()  # the JSON of a webhook; an e-mail carries its "text"
    state = models.CharField(max_length=8, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    tries = models.PositiveIntegerField(default=0)
    reason = models.CharField(max_length=300, blank=True)
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(default=timezone.now)
    next_try_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["state", "next_try_at"], name="delivery_due"),
            models.Index(fields=["user", "-created_at"], name="delivery_of_user"),
        ]

    def __str__(self) -> str:
        return f"{self.channel}: {self.subject}"
