"""What every page shows of alerts: the count in its header."""

from __future__ import annotations

from django import template
from django.db import DatabaseError

from hacrl_web.alerts.models import Alert

register = template.Library()


@register.simple_tag(takes_context=True)
def open_alert_count(context: template.Context) -> int:
    """How many alerts of visible runs are open: what the list behind the number shows."""
    try:
        return Alert.objects.listed_for(context["user"]).filter(cleared_at=None).count()
    except DatabaseError:  # the frame of the page that says "database busy" must not need the database
        return 0
