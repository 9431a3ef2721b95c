"""From alerts and status changes to messages in the outbox: for each user who wants to be told, once each.

It only writes rows; send.py sends them. What is older than an hour is not told any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db.models import Exists, Max, OuterRef, Q
from django.utils import timezone

from hacrl_web.accounts.models import Membership, User
from hacrl_web.alerts.models import ENDED, Alert, Delivery, DeliveryState, NotificationSettings
from hacrl_web.runs.models import Run, State, StatusChange

TOO_OLD = timedelta(hours=1)
OVERLAP = 200  # rows that another transaction may still have to commit behind a newer one
MAX_PER_HOUR = 60  # of one user
TEST_PAUSE = timedelta(seconds=10)
TEXT_LIMIT = 2000
WISH_OF_STATE = {
    State.FAILED: "on_failed",
    State.PAUSED: "on_failed",  # by itself, where it cannot go on: its verifier fails, say
    State.LOST: "on_lost",
    State.COMPLETED: "on_completed",
}
# Whoever is out of a project is told nothing more of the own runs in it.
_OF_OWNER = Membership.objects.filter(project=OuterRef("run__project"), user=OuterRef("run__owner"))
STILL_SEES = Q(run__owner__is_staff=True) | Exists(_OF_OWNER)
PAUSED_BY_SOMEBODY = Q(to_state=State.PAUSED, reason__startswith="paused by ")


Wishes = dict[Any, NotificationSettings]


@dataclass(frozen=True)
class Message:
    """What is to be told to whom; its text is made only where it is new."""

    wish: NotificationSettings
    key: str
    make: Callable[[], dict[str, Any]]
    about: dict[str, Any] = field(default_factory=dict)


class Notifier:
    """`tick` about once a second, after the evaluator's."""

    def __init__(self) -> None:
        self._seen_change = 0

    def tick(self) -> int:
        """Write what is to be told; returns how many messages."""
        wishes = {one.pk: one for one in NotificationSettings.objects.filter(user__is_active=True) if one.channels}
        if not wishes:
            self._seen_change = 0
            return 0
        return queue_messages([*self._tell_alerts(wishes), *self._tell_changes(wishes)])

    def _tell_alerts(self, wishes: Wishes) -> Iterator[Message]:
        since = timezone.now() - TOO_OLD
        recent = Q(raised_at__gte=since) | Q(cleared_at__gte=since)
        alerts = (
            Alert.objects.filter(recent, STILL_SEES, run__owner__in=wishes).select_related("run").defer("run__spec")
        )
        for alert in alerts.order_by("raised_at", "pk"):
            wish = wishes[alert.run.owner_id]
            if wish.on_alert and alert.raised_at >= max(since, wish.saved_at):
                yield Message(wish, f"alert:{alert.pk}:raised", partial(alert_message, alert, True), {"alert": alert})
            is_news = alert.cleared_at is not None and alert.cleared_at >= max(since, wish.saved_at)
            if wish.on_cleared and is_news and not alert.cleared_reason.startswith(ENDED):
                yield Message(wish, f"alert:{alert.pk}:cleared", partial(alert_message, alert, False), {"alert": alert})

    def _tell_changes(self, wishes: Wishes) -> Iterator[Message]:
        since = timezone.now() - TOO_OLD
        newest = StatusChange.objects.aggregate(Max("pk"))["pk__max"] or 0
        changes = StatusChange.objects.filter(
            STILL_SEES,
            pk__gt=self._seen_change - OVERLAP,
            at__gte=since,
            to_state__in=WISH_OF_STATE,
            run__owner__in=wishes,
        ).select_related("run")
        changes = changes.exclude(PAUSED_BY_SOMEBODY)
        for change in changes.defer("run__spec").order_by("pk"):
            wish = wishes[change.run.owner_id]
            if getattr(wish, WISH_OF_STATE[State(change.to_state)]) and change.at >= wish.saved_at:
                yield Message(wish, f"change:{change.pk}", partial(change_message, change), {"change": change})
        self._seen_change = newest


def queue_messages(messages: Iterable[Message]) -> int:
    """Put messages into the outbox of each channel, unless they are there; returns how many were new."""
    by_key = {f"{one.key}:{channel}": (one, channel) for one in messages for channel in one.wish.channels}
    existing = set(Delivery.objects.filter(key__in=by_key).values_list("key", flat=True)) if by_key else set()
    return sum(_store(key, *by_key[key]) for key in by_key if key not in existing)


def _store(key: str, message: Message, channel: str) -> bool:
    wish, body = message.wish, message.make()
    hour = Delivery.objects.filter(user_id=wish.pk, created_at__gte=timezone.now() - timedelta(hours=1))
    is_flood = hour.exclude(state=DeliveryState.SKIPPED).count() >= MAX_PER_HOUR
    values = {
        "user_id": wish.pk,
        "channel": channel,
        "target": wish.addresses[channel],
        "subject": body["subject"],
        "body": body,
        **message.about,
    }
    if is_flood:
        values |= {"state": DeliveryState.SKIPPED, "reason": f"more than {MAX_PER_HOUR} messages within an hour"}
    return Delivery.objects.get_or_create(key=key, defaults=values)[1]


def queue_test(user: User) -> int:
    """One test message to each of the user's addresses; none where one was asked for just now."""
    wish = NotificationSettings.objects.filter(pk=user.pk).first()
    now = timezone.now()
    recent = Delivery.objects.filter(user=user, key__startswith="test:", created_at__gte=now - TEST_PAUSE)
    if wish is None or recent.exists():
        return 0
    message = {"event": "test", "subject": "HACRL Web: test", "text": "Notifications of HACRL Web reach this address."}
    return queue_messages([Message(wish, f"test:{user.pk}:{now.timestamp():.0f}", lambda: message)])


def alert_message(alert: Alert, is_raised: bool) -> dict[str, Any]:
    """What is sent of an alert: "text" for people (chat webhooks show it), the rest for programs."""
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
    """What is sent of a run that failed, paused by itself, was lost, or completed."""
    run = change.run
    lines = [
        f"{change.to_state}: {run.name}",
        f"at step {run.step} of {run.total_steps}",
        change.reason,
        _run(run)["url"],
    ]
    return {
        "event": f"run.{change.to_state}",
        "subject": _one_line(lines[0]),
        "text": "\n".join(line for line in lines if line)[:TEXT_LIMIT],
        "run": _run(run),
        "reason": change.reason[:TEXT_LIMIT],
    }


def _run(run: Run) -> dict[str, Any]:
    return {"id": str(run.pk), "name": run.name, "url": settings.PUBLIC_URL + run.get_absolute_url()}


def _one_line(text: str) -> str:
    return " ".join(text.split())[:190]


def pauses() -> Iterator[timedelta]:
    """How long to wait before each further try."""
    for seconds in (10, 60, 300, 1800, 7200):
        yield timedelta(seconds=seconds)
