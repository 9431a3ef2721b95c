"""API of alerts, their rules, and the user's notifications."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, ModelSchema, Query, Router, Schema
from typing_extensions import TypedDict

from hacrl_web.accounts.models import User
from hacrl_web.alerts.models import Alert, Delivery, NotificationSettings
from hacrl_web.alerts.notifications.forms import LABELS, NotificationForm
from hacrl_web.alerts.notifications.notify import queue_test
from hacrl_web.alerts.rules.table import BY_KIND, RULES
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.etags import check_version, edit_of, tagged
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import EVERY_FIELD, Number, PageOf, StrictBody

NEVER = datetime(9999, 1, 1, tzinfo=UTC)
Which = Literal["open", "cleared", "all"]
router = Router(tags=["alerts"])


class AlertAnswer(ModelSchema):
    """chart: key of the run's chart that shows the alert, null for a kind that no longer exists.

    fix_url: the new-run form with a clone of the run that has the remedy; may be empty.  fix: the change in words.
    """

    model_config = EVERY_FIELD
    source: str
    cleared_reason: str
    id: int
    run: str
    title: str
    number: float | None
    advice: str
    chart: str | None
    url: str = Field(alias="get_absolute_url")
    fix_url: str
    fix: str
    is_open: bool

    class Meta:
        model = Alert
        exclude = ("raised_seq",)

    @staticmethod
    def resolve_run(alert: Alert) -> str:
        return str(alert.run_id)

    @staticmethod
    def resolve_chart(alert: Alert) -> str | None:
        return alert.rule.chart if alert.rule else None


class AlertsOfRunAnswer(TypedDict):
    """A page of alerts, the open ones first. num_open: of the run, not of the page."""

    items: list[AlertAnswer]
    count: int
    next: str | None
    num_open: int


class RuleAnswer(Schema):
    kind: str
    title: str
    help: str
    scope: str
    metric: str
    chart: str
    source: str
    advice: str
    is_low: bool
    raise_at: Number
    raise_after: int
    clear_at: Number
    clear_after: int


class RulesAnswer(TypedDict):
    rules: list[RuleAnswer]


def _listing(alerts: Any, state: str, query: ListQuery) -> dict[str, Any]:
    return listing(alerts if state == "all" else alerts.filter(cleared_at__isnull=state == "open"), query)


@router.get("/alerts", response=PageOf[AlertAnswer], summary="Alerts of all visible runs, newest first")
def list_alerts(request: HttpRequest, query: Query[ListQuery], state: Which = "all", kind: str | None = None) -> Any:
    alerts = Alert.objects.visible_to(request.user)
    if kind is not None:
        if kind not in BY_KIND:
            raise FieldErrors.single("invalid", f"Must be one of {', '.join(BY_KIND)}.", "kind")
        alerts = alerts.filter(kind=kind)
    return _listing(alerts, state, query)


@router.get(
    "/runs/{run_id}/alerts", response=AlertsOfRunAnswer, summary="Alerts of a run: the open ones, then the others"
)
def list_alerts_of_run(request: HttpRequest, run_id: UUID, query: Query[ListQuery], state: Which = "all") -> Any:
    """Open ones newest first, then cleared ones, the last cleared first."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    alerts = Alert.objects.filter(run=run).annotate(ended_at=Coalesce("cleared_at", Value(NEVER)))
    alerts = alerts.order_by("-ended_at", "-raised_at", "-pk")
    num_open = alerts.filter(cleared_at=None).count()
    return _listing(alerts, state, query) | {"num_open": num_open}


@router.get("/alert-rules", response=RulesAnswer, summary="The rules with their limits and the source of each")
def list_rules(request: HttpRequest) -> Any:
    return {"rules": RULES}


# Notifications


class NotificationValues(StrictBody):
    """Which events are sent, and where; the fields of the form."""

    email_enabled: bool
    email: str
    webhook_enabled: bool
    webhook_url: str
    on_alert: bool
    on_cleared: bool
    on_failed: bool
    on_lost: bool
    on_completed: bool


class QueuedAnswer(TypedDict):
    queued: int


class DeliveryAnswer(ModelSchema):
    model_config = EVERY_FIELD
    id: int
    reason: str

    class Meta:
        model = Delivery
        fields = ("id", "channel", "target", "subject", "state", "tries", "reason", "created_at", "sent_at")


def _values(row: NotificationSettings) -> dict[str, Any]:
    return {name: getattr(row, name) for name in LABELS}


@router.get("/notifications", response=NotificationValues, summary="Your notification settings, with their ETag")
def get_notifications(request: HttpRequest) -> Any:
    return tagged(request, _values(NotificationSettings.of(request.user)))


@router.put("/notifications", response=NotificationValues, summary="Change them; If-Match: the ETag that you read")
def change_notifications(request: HttpRequest, payload: NotificationValues) -> Any:
    with edit_of(User, request.user.pk):  # the settings may have no row yet
        row = NotificationSettings.of(request.user)
        check_version(request, _values(row))
        form = NotificationForm(payload.dict(), instance=row)
        if not form.is_valid():
            errors = form.errors.get_json_data().items()
            raise FieldErrors(
                FieldError(one["code"] or "invalid", one["message"], name) for name, of in errors for one in of
            )
        form.save()
    return tagged(request, _values(NotificationSettings.of(request.user)))


@router.post("/notifications/test", response=QueuedAnswer, summary="Send a test message to each of your addresses")
def test_notifications(request: HttpRequest) -> Any:
    user: User = request.user
    count = queue_test(user)
    if not count:
        message = "Turn on e-mail or a webhook first; at most one test in ten seconds."
        raise FieldErrors.single("nothing_sent", message, status=409)
    return {"queued": count}


@router.get("/deliveries", response=PageOf[DeliveryAnswer], summary="Messages sent to you, with their outcome")
def list_deliveries(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(Delivery.objects.visible_to(request.user), query)
