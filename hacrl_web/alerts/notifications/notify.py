"""Writes messages on alerts and status changes into the outbox, each once, for the owners who want them.

`send.py` sends them. Events older than an hour are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Exists, Max, OuterRef, Q
from django.utils import timezone

from hacrl_web.accounts.models import Membership, User
from hacrl_web.alerts.models import ENDED, Alert, Delivery, DeliveryState, NotificationSettings
from hacrl_web.runs.models import Run, State, StatusChange

TOO_OLD = timedelta(hours=1)
OVERLAP = 200  # rows to read again, since a transaction may commit after one with a higher id
MAX_PER_HOUR = 60  # of one user
TEST_PAUSE = timedelta(seconds=10)
TEXT_LIMIT = 2000
SETTING_OF_STATE = {
    State.FAILED: "on_failed",
    State.PAUSED: "on_failed",  # by itself, for example because its verifier fails
    State.LOST: "on_lost",
    State.COMPLETED: "on_completed",
}
# A user who has left a project gets no messages on runs there.
_MEMBERSHIP_OF_OWNER = Membership.objects.filter(project=OuterRef("run__project"), user=OuterRef("run__owner"))
OWNER_HAS_ACCESS = Q(run__owner__is_staff=True) | Exists(_MEMBERSHIP_OF_OWNER)
PAUSED_BY_USER = Q(to_state=State.PAUSED, reason__startswith="paused by ")
SettingsOfUsers = dict[Any, NotificationSettings]  # by the user's id


@dataclass(frozen=True)
class Message:
    """An event for one user."""

    recipient: NotificationSettings
    key: str
    body: dict[str, Any]
    origin: dict[str, Any] = field(default_factory=dict)  # the alert or status change, as a field of Delivery


class Notifier:
    """Queues messages on new events; call `tick` about once a second, after the evaluator's."""

    def __init__(self) -> None:
        self._last_change = 0

    def tick(self) -> int:
        """Queue messages on all new events; returns how many."""
        recipients = {one.pk: one for one in NotificationSettings.objects.filter(user__is_active=True) if one.addresses}
        if not recipients:
            self._last_change = 0
            return 0
        return queue_messages([*self._on_alerts(recipients), *self._on_changes(recipients)])

    def _on_alerts(self, recipients: SettingsOfUsers) -> Iterator[Message]:
        since = timezone.now() - TOO_OLD
        recent = Q(raised_at__gte=since) | Q(cleared_at__gte=since)
        alerts = Alert.objects.filter(recent, OWNER_HAS_ACCESS, run__owner__in=recipients).select_related("run")
        for alert in alerts.defer("run__spec").order_by("raised_at", "pk"):
            recipient = recipients[alert.run.owner_id]
            if alert.run.is_imported:
                continue
            sends_clearing = recipient.on_cleared and not alert.cleared_reason.startswith(ENDED)
            events = (("raised", recipient.on_alert, alert.raised_at), ("cleared", sends_clearing, alert.cleared_at))
            for name, is_on, at in events:
                if is_on and at is not None and at >= max(since, recipient.saved_at):
                    body = alert_message(alert, name == "raised")
                    yield Message(recipient, f"alert:{alert.pk}:{name}", body, {"alert": alert})

    def _on_changes(self, recipients: SettingsOfUsers) -> Iterator[Message]:
        since = timezone.now() - TOO_OLD
        newest = StatusChange.objects.aggregate(Max("pk"))["pk__max"] or 0
        changes = StatusChange.objects.filter(
            OWNER_HAS_ACCESS,
            pk__gt=self._last_change - OVERLAP,
            at__gte=since,
            to_state__in=SETTING_OF_STATE,
            run__owner__in=recipients,
        ).select_related("run")
        changes = changes.exclude(PAUSED_BY_USER)
        for change in changes.defer("run__spec").order_by("pk"):
            recipient = recipients[change.run.owner_id]
            if change.run.is_imported:
                continue  # it happened elsewhere
            if getattr(recipient, SETTING_OF_STATE[State(change.to_state)]) and change.at >= recipient.saved_at:
                yield Message(recipient, f"change:{change.pk}", change_message(change), {"change": change})
        self._last_change = newest


def queue_messages(messages: Iterable[Message]) -> int:
    """Store each message once for each channel of its recipient; returns how many are new."""
    by_key = {f"{one.key}:{channel}": (one, channel) for one in messages for channel in one.recipient.addresses}
    existing = set(Delivery.objects.filter(key__in=by_key).values_list("key", flat=True)) if by_key else set()
    return sum(_store(key, *by_key[key]) for key in by_key if key not in existing)


def _store(key: str, message: Message, channel: str) -> bool:
    recipient, body = message.recipient, message.body
    hour = Delivery.objects.filter(user_id=recipient.pk, created_at__gte=timezone.now() - timedelta(hours=1))
    is_flood = hour.exclude(state=DeliveryState.SKIPPED).count() >= MAX_PER_HOUR
    values = {
        "user_id": recipient.pk,
        "channel": channel,
        "target": recipient.addresses[channel],
        "subject": body["subject"],
        "body": body,
        **message.origin,
    }
    if is_flood:
        values |= {"state": DeliveryState.SKIPPED, "reason": f"more than {MAX_PER_HOUR} messages in one hour"}
    return Delivery.objects.get_or_create(key=key, defaults=values)[1]


def queue_test(user: User) -> int:
    """Queue a test message to each of the user's addresses; none within TEST_PAUSE of the last. Returns how many."""
    recipient = NotificationSettings.objects.filter(pk=user.pk).first()
    now = timezone.now()
    recent = Delivery.objects.filter(user=user, key__startswith="test:", created_at__gte=now - TEST_PAUSE)
    if recipient is None or recent.exists():
        return 0
    message = {
        "event": "test",
        "subject": "HACRL Web: test",
        "text": "A test: notifications of HACRL Web reach this address.",
    }
    return queue_messages([Message(recipient, f"test:{user.pk}:{now.timestamp():.0f}", message)])


def alert_message(alert: Alert, is_raised: bool) -> dict[str, Any]:
    """The body of a message on an alert: "text" for people (chat webhooks show it), the rest for programs."""
    url = settings.PUBLIC_URL + alert.get_absolute_url()
    if is_raised:
        lines = [f"{alert.title}, at step {alert.raised_step} of {alert.run.name}", alert.text, alert.advice, url]
    else:
        lines = [f"Cleared: {alert.title}, at step {alert.cleared_step} of {alert.run.name}", alert.cleared_reason, url]
    return {
        "event": "alert.raised" if is_raised else "alert.cleared",
        "subject": _one_line(lines[0]),
        "text": "\n".join(lines)[:TEXT_LIMIT],
        "run": _run(alert.run),
        "alert": {
            "id": alert.pk,
            "kind": alert.kind,
            "agent": alert.agent,
            "source": alert.source,
            "number": alert.number,
            "raised_step": alert.raised_step,
            "cleared_step": alert.cleared_step,
        },
    }


def change_message(change: StatusChange) -> dict[str, Any]:
    """The body of a message on a run that failed, paused by itself, was lost, or completed."""
    run = change.run
    first_line = f"{change.to_state}: {run.name}"
    lines = [first_line, f"at step {run.step} of {run.total_steps}", change.reason, _run(run)["url"]]
    return {
        "event": f"run.{change.to_state}",
        "subject": _one_line(first_line),
        "text": "\n".join(line for line in lines if line)[:TEXT_LIMIT],
        "run": _run(run),
        "reason": change.reason[:TEXT_LIMIT],
    }


def _run(run: Run) -> dict[str, Any]:
    return {"id": str(run.pk), "name": run.name, "url": settings.PUBLIC_URL + run.get_absolute_url()}


def _one_line(text: str) -> str:
    return " ".join(text.split())[:190]
