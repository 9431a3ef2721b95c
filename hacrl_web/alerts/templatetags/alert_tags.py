"""The count of open alerts in the header of every page."""

from __future__ import annotations

from dataclasses import dataclass

from django import template
from django.db import DatabaseError

from hacrl_web.alerts.models import Alert

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


@dataclass(frozen=True)
class Cause:
    """The open alerts of one kind in one run: its newest, and how many there are."""

    alert: Alert
    count: int


@register.simple_tag(takes_context=True)
def alerts_by_cause(context: template.Context) -> list[Cause]:
    """The open alerts of the listed runs, those of one run and kind together, newest first."""
    opened = Alert.objects.listed_for(context["user"]).filter(cleared_at=None).select_related("run")
    by_cause: dict[tuple[object, str], list[Alert]] = {}
    for alert in opened.defer("run__spec")[:MAX_READ]:
        by_cause.setdefault((alert.run_id, alert.kind), []).append(alert)
    return [Cause(some[0], len(some)) for some in list(by_cause.values())[:MAX_CAUSES]]
