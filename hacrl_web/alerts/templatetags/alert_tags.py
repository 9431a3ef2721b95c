"""What other pages show of alerts: the count in the header, and a run's own."""

from __future__ import annotations

from django import template
from django.db import DatabaseError
from django.db.models import QuerySet

from hacrl_web.alerts.models import Alert
from hacrl_web.runs.models import Run

register = template.Library()
SHOWN = 200


@register.simple_tag(takes_context=True)
def open_alert_count(context: template.Context) -> int:
    """How many alerts of visible runs are open: what the list behind the number shows."""
    try:
        return Alert.objects.visible_to(context["user"]).filter(cleared_at=None).count()
    except DatabaseError:  # the frame of the page that says "database busy" must not need the database
        return 0


@register.simple_tag
def alerts_of(run: Run) -> QuerySet[Alert]:
    """A run's alerts, newest first."""
    return Alert.objects.filter(run=run)[:SHOWN]
