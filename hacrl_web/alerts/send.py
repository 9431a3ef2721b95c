"""The outbox's other end: sends what is due, and records what became of it. Runs in the watcher, never in a request."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.core.mail import EmailMessage
from django.db.models import F
from django.utils import timezone

from hacrl_web.alerts import webhook
from hacrl_web.alerts.models import Channel, Delivery, DeliveryState, NotificationSettings
from hacrl_web.alerts.notify import pauses

AT_ONCE = 20
LEASE = timedelta(minutes=2)  # longer than one sending takes: a sender that dies loses its message to the next
log = logging.getLogger(__name__)


def send_due() -> int:
    """Send what is due; returns how many messages were tried."""
    now = timezone.now()
    due = Delivery.objects.filter(state=DeliveryState.WAITING, next_try_at__lte=now).order_by("next_try_at", "pk")
    tried = 0
    for delivery in due[:AT_ONCE]:
        mine = Delivery.objects.filter(
            pk=delivery.pk, state=DeliveryState.WAITING, next_try_at=delivery.next_try_at, tries=delivery.tries
        )
        if mine.update(next_try_at=timezone.now() + LEASE, tries=F("tries") + 1):
            delivery.tries += 1
            _send(delivery)
            tried += 1
    return tried


def _send(delivery: Delivery) -> None:
    try:
        reason = _by_channel(delivery)
    except webhook.AddressRefused as refusal:
        _end(delivery, DeliveryState.FAILED, str(refusal))
    except webhook.DeliveryFailed as failure:
        _failed(delivery, str(failure), is_final=failure.is_final)
    except Exception as error:  # smtplib raises many kinds; the message must not be lost for any of them
        log.warning("delivery %s by %s failed: %s", delivery.pk, delivery.channel, error)
        _failed(delivery, f"{type(error).__name__}: {error}", is_final=False)
    else:
        _end(delivery, DeliveryState.SENT, reason)


def _by_channel(delivery: Delivery) -> str:
    """Send it; returns what the other side said."""
    # What the user wants now, which may not be what it was when the message was written.
    wish = NotificationSettings.objects.filter(pk=delivery.user_id).first()
    target = wish.addresses.get(delivery.channel) if wish else None
    if target is None:
        raise webhook.AddressRefused(f"{delivery.channel} was turned off")
    if target != delivery.target:
        delivery.target = target
        delivery.save(update_fields=["target"])
    if delivery.channel == Channel.WEBHOOK:
        return f"answered {webhook.post(delivery.target, delivery.body)}"
    EmailMessage(subject=delivery.subject, body=delivery.body["text"], to=[delivery.target]).send()
    return "taken by the mail server"


def _failed(delivery: Delivery, reason: str, *, is_final: bool) -> None:
    waits = list(pauses())
    if is_final or delivery.tries > len(waits):
        _end(delivery, DeliveryState.FAILED, f"{reason} ({delivery.tries} tries)" if delivery.tries > 1 else reason)
        return
    Delivery.objects.filter(pk=delivery.pk).update(
        next_try_at=timezone.now() + waits[delivery.tries - 1], reason=reason[:300]
    )


def _end(delivery: Delivery, state: str, reason: str) -> None:
    sent_at = timezone.now() if state == DeliveryState.SENT else None
    Delivery.objects.filter(pk=delivery.pk).update(state=state, reason=reason[:300], sent_at=sent_at)
