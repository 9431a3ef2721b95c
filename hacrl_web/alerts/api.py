"""The alerts' part of the REST API: alerts and their rules to read, and what a user wants to be told of."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router

from hacrl_web.accounts.models import User
from hacrl_web.alerts.answers import (
    AlertAnswer,
    AlertsOfRunAnswer,
    DeliveryAnswer,
    QueuedAnswer,
    RulesAnswer,
    WishesAnswer,
)
from hacrl_web.alerts.forms import LABELS, NotificationForm
from hacrl_web.alerts.models import Alert, Delivery, NotificationSettings
from hacrl_web.alerts.notify import queue_test
from hacrl_web.alerts.rules import BY_KIND, RULES
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.etags import check_version, edit_of, tagged
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

NEVER = datetime(9999, 1, 1, tzinfo=UTC)
Which = Literal["open", "cleared", "all"]
router = Router(tags=["alerts"])


def alert_summary(alert: Alert) -> dict[str, Any]:
    """An alert as lists show it."""
    return {
        "id": alert.pk,
        "run": str(alert.run_id),
        "kind": alert.kind,
        "title": alert.title,
        "agent": alert.agent,
        "source": alert.source,
        "attempt": alert.attempt,
        "number": alert.number,
        "text": alert.text,
        "advice": alert.advice,
        "chart": alert.rule.chart if alert.rule else None,
        "url": alert.get_absolute_url(),
        "is_open": alert.is_open,
        "raised_step": alert.raised_step,
        "raised_at": alert.raised_at,
        "cleared_step": alert.cleared_step,
        "cleared_at": alert.cleared_at,
        "cleared_reason": alert.cleared_reason,
    }


def _listing(alerts: Any, state: str, query: ListQuery) -> dict[str, Any]:
    if state != "all":
        alerts = alerts.filter(cleared_at__isnull=state == "open")
    return listing(alerts, query, alert_summary)


@router.get("/alerts", response=PageOf[AlertAnswer], summary="Alerts of all visible runs, newest first")
def list_alerts(request: HttpRequest, query: Query[ListQuery], state: Which = "all", kind: str | None = None) -> Any:
    alerts = Alert.objects.visible_to(request.user)
    if kind is not None:
        if kind not in BY_KIND:
            raise FieldErrors([FieldError("invalid", f"Must be one of {', '.join(BY_KIND)}.", "kind")])
        alerts = alerts.filter(kind=kind)
    return _listing(alerts, state, query)


@router.get(
    "/runs/{run_id}/alerts", response=AlertsOfRunAnswer, summary="Alerts of a run: the open ones, then the others"
)
def list_alerts_of_run(request: HttpRequest, run_id: UUID, query: Query[ListQuery], state: Which = "all") -> Any:
    """Open ones newest first, then those cleared, the last one first. `num_open` counts all that are open."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    # An open one ends after all others.
    alerts = Alert.objects.filter(run=run).annotate(ended_at=Coalesce("cleared_at", Value(NEVER)))
    alerts = alerts.order_by("-ended_at", "-raised_at", "-pk")
    num_open = alerts.filter(cleared_at=None).count()
    return _listing(alerts, state, query) | {"num_open": num_open}


@router.get("/alert-rules", response=RulesAnswer, summary="The rules with their limits and where these come from")
def list_rules(request: HttpRequest) -> Any:
    names = ("kind", "title", "help", "scope", "metric", "chart", "source", "advice", "is_low")
    limits = ("raise_at", "raise_after", "clear_at", "clear_after")
    return {"rules": [{name: getattr(rule, name) for name in (*names, *limits)} for rule in RULES]}


# Notifications


class Wishes(StrictBody):
    """What is told, and where; as the form has it."""

    email_enabled: bool
    email: str
    webhook_enabled: bool
    webhook_url: str
    on_alert: bool
    on_cleared: bool
    on_failed: bool
    on_lost: bool
    on_completed: bool


def _wishes(user: Any) -> NotificationSettings:
    row = NotificationSettings.objects.filter(user=user).first()
    return row or NotificationSettings(user=user, email=user.email)


def _told(wishes: NotificationSettings) -> dict[str, Any]:
    return {name: getattr(wishes, name) for name in LABELS}


@router.get("/notifications", response=WishesAnswer, summary="What you want to be told, and where, with its ETag")
def get_notifications(request: HttpRequest) -> Any:
    return tagged(request, _told(_wishes(request.user)))


@router.put("/notifications", response=WishesAnswer, summary="Change it; the ETag that you read goes into If-Match")
def change_notifications(request: HttpRequest, payload: Wishes) -> Any:
    with edit_of(User, request.user.pk):  # the settings' own row may not be there yet
        wishes = _wishes(request.user)
        check_version(request, _told(wishes))
        form = NotificationForm(payload.dict(), instance=wishes)
        if not form.is_valid():
            errors = form.errors.get_json_data().items()
            raise FieldErrors(
                FieldError(one["code"] or "invalid", one["message"], name) for name, of in errors for one in of
            )
        form.save()
    return tagged(request, _told(_wishes(request.user)))


@router.post("/notifications/test", response=QueuedAnswer, summary="Send a test to each of your addresses")
def test_notifications(request: HttpRequest) -> Any:
    user: Any = request.user
    count = queue_test(user)
    if not count:
        message = "Turn on e-mail or a webhook first; at most one test in ten seconds."
        raise FieldErrors([FieldError("nothing_sent", message, None)], 409)
    return {"queued": count}


@router.get("/deliveries", response=PageOf[DeliveryAnswer], summary="What was sent to you, and what became of it")
def list_deliveries(request: HttpRequest, query: Query[ListQuery]) -> Any:
    names = ("channel", "target", "subject", "state", "tries", "reason", "created_at", "sent_at")
    return listing(
        Delivery.objects.visible_to(request.user),
        query,
        lambda one: {"id": one.pk, **{name: getattr(one, name) for name in names}},
    )
