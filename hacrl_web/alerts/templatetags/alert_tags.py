"""What pages show of alerts: those that are open, and the remedy for a run that ended."""

from __future__ import annotations

from django import template
from django.db import DatabaseError

from hacrl_web.alerts.models import ENDED, Alert, AlertCause, by_cause
from hacrl_web.runs.models import Run

register = template.Library()


@register.simple_tag(takes_context=True)
def open_alert_count(context: template.Context) -> int:
    """How many alerts are open in the list that the number links to."""
    try:
        return Alert.objects.listed_for(context["user"]).filter(cleared_at=None).count()
    except DatabaseError:  # the page "database busy" has the same header and must not need the database
        return 0


MAX_CAUSES = 6
MAX_READ = 200


@register.simple_tag(takes_context=True)
def alerts_by_cause(context: template.Context) -> list[AlertCause]:
    """The open alerts of the listed runs, those of one run and kind together, newest first."""
    opened = Alert.objects.listed_for(context["user"]).filter(cleared_at=None).select_related("run")
    return by_cause(opened.defer("run__spec")[:MAX_READ])[:MAX_CAUSES]


@register.simple_tag
def fix_url_of_ending(run: Run) -> str:
    """The clone with a remedy, of the newest alert that has one and was still open when the run ended."""
    alerts = Alert.objects.filter(run=run).order_by("-raised_at")
    still_open = (alert for alert in alerts[:100] if alert.is_open or alert.cleared_reason.startswith(ENDED))
    return next((alert.fix_url for alert in still_open if alert.fix_url), "")
