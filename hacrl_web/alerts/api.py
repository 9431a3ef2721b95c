"""The alerts' part of the REST API: read only."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.db.models import F
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router

from hacrl_web.alerts.models import Alert
from hacrl_web.alerts.rules import BY_KIND, RULES
from hacrl_web.errors import FieldError, FieldErrors
from hacrl_web.runs.models import Run

MAX_PAGE = 200
Which = Literal["open", "closed", "all"]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Offset = Annotated[int, Query(ge=0, le=10_000_000)]
router = Router(tags=["alerts"])


def summary(alert: Alert) -> dict[str, Any]:
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


def _listing(alerts: Any, state: str, limit: int, offset: int) -> dict[str, Any]:
    if state != "all":
        alerts = alerts.filter(cleared_at__isnull=state == "open")
    return {"count": alerts.count(), "alerts": [summary(alert) for alert in alerts[offset : offset + limit]]}


@router.get("/alerts", response=dict, summary="Alerts of all visible runs, newest first")
def list_alerts(
    request: HttpRequest, state: Which = "all", kind: str | None = None, limit: Limit = 50, offset: Offset = 0
) -> Any:
    alerts = Alert.objects.visible_to(request.user)
    if kind is not None:
        if kind not in BY_KIND:
            raise FieldErrors([FieldError("invalid", f"Must be one of {', '.join(BY_KIND)}.", "kind")])
        alerts = alerts.filter(kind=kind)
    return _listing(alerts, state, limit, offset)


@router.get("/runs/{run_id}/alerts", response=dict, summary="Alerts of a run: the open ones, then the others")
def list_alerts_of_run(
    request: HttpRequest, run_id: UUID, state: Which = "all", limit: Limit = 100, offset: Offset = 0
) -> Any:
    """Open ones newest first, then those cleared, the last one first. `num_open` counts all that are open."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    alerts = Alert.objects.filter(run=run).order_by(F("cleared_at").desc(nulls_first=True), "-raised_at", "-pk")
    num_open = alerts.filter(cleared_at=None).count()
    return _listing(alerts, state, limit, offset) | {"num_open": num_open}


@router.get("/alert-rules", response=dict, summary="The rules with their limits and where these come from")
def list_rules(request: HttpRequest) -> Any:
    names = ("kind", "title", "help", "scope", "metric", "chart", "source", "advice", "is_low")
    limits = ("raise_at", "raise_after", "clear_at", "clear_after")
    return {"rules": [{name: getattr(rule, name) for name in (*names, *limits)} for rule in RULES]}
