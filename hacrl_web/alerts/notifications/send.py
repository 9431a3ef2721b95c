"""Sends the messages of the outbox that are due, and records the outcome. Runs in the watcher, never in a request."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.core.mail import EmailMessage
from django.db.models import F
from django.utils import timezone

from hacrl_web.alerts.models import Channel, Delivery, DeliveryState, NotificationSettings
from hacrl_web.alerts.notifications import webhook
from workers.contract.allowed_address import AddressRefused

AT_ONCE = 20
LEASE = timedelta(minutes=2)  # longer than any sending: if a sender dies, the next one takes its message over
RETRY_AFTER = [timedelta(seconds=seconds) for seconds in (10, 60, 300, 1800, 7200)]
log = logging.getLogger(__name__)


def send_due() -> int:
    """Send the messages that are due; returns how many."""
    now = timezone.now()
    due = Delivery.objects.filter(state=DeliveryState.WAITING, next_try_at__lte=now).order_by("next_try_at", "pk")
    count = 0
    for delivery in due[:AT_ONCE]:
        lease = Delivery.objects.filter(
            pk=delivery.pk, state=DeliveryState.WAITING, next_try_at=delivery.next_try_at, tries=delivery.tries
        )
        if lease.update(next_try_at=timezone.now() + LEASE, tries=F("tries") + 1):
            delivery.tries += 1
            _send(delivery)
            count += 1
    return count


def _send(delivery: Delivery) -> None:
    try:
        reason = _deliver(delivery)
    except AddressRefused as refusal:
        _end(delivery, DeliveryState.FAILED, str(refusal))
    except webhook.DeliveryFailed as failure:
        _retry_or_fail(delivery, str(failure), is_final=failure.is_final)
    except Exception as error:  # smtplib raises many kinds; none of them may lose the message
        log.warning("delivery %s by %s failed: %s", delivery.pk, delivery.channel, error)
        _retry_or_fail(delivery, f"{type(error).__name__}: {error}", is_final=False)
    else:
        _end(delivery, DeliveryState.SENT, reason)


def _deliver(delivery: Delivery) -> str:
    """Send it; returns the receiver's answer."""
    # The address as it is now: the user may have changed it since the message was queued.
    row = NotificationSettings.objects.filter(pk=delivery.user_id).first()
    target = row.addresses.get(delivery.channel) if row else None
    if target is None:
        raise AddressRefused(f"{delivery.channel} was turned off")
    if target != delivery.target:
        delivery.target = target
        delivery.save(update_fields=["target"])
    if delivery.channel == Channel.WEBHOOK:
        return f"answered {webhook.post(delivery.target, delivery.body)}"
    EmailMessage(subject=delivery.subject, body=delivery.body["text"], to=[delivery.target]).send()
    return "accepted by the mail server"


def _retry_or_fail(delivery: Delivery, reason: str, *, is_final: bool) -> None:
    if is_final or delivery.tries > len(RETRY_AFTER):
        _end(delivery, DeliveryState.FAILED, f"{reason} ({delivery.tries} tries)" if delivery.tries > 1 else reason)
        return
    Delivery.objects.filter(pk=delivery.pk).update(
        next_try_at=timezone.now() + RETRY_AFTER[delivery.tries - 1], reason=reason[:300]
    )


def _end(delivery: Delivery, state: str, reason: str) -> None:
    sent_at = timezone.now() if state == DeliveryState.SENT else None
    Delivery.objects.filter(pk=delivery.pk).update(state=state, reason=reason[:300], sent_at=sent_at)
