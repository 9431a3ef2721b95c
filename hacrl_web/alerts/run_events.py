"""Alerts in the list of all that happened to a run (insight/run_tabs/event_list.py)."""

from __future__ import annotations

from hacrl_web.alerts.models import Alert
from hacrl_web.insight.run_tabs.timeline_entry import Source, TimelineEntry
from hacrl_web.runs.models import Run

KINDS = {"alert": "alert"}


def entry_sources(run: Run) -> list[Source]:
    alerts = Alert.objects.filter(run=run)
    return [(alerts, "raised_at", _raised), (alerts.filter(cleared_at__isnull=False), "cleared_at", _cleared)]


def _raised(alert: Alert) -> TimelineEntry:
    at, pair = alert.raised_at.timestamp(), f" ← {alert.source}" if alert.source else ""
    detail = f"{alert.agent}{pair}: {alert.text}"
    return TimelineEntry(
        at, alert.pk, "alert", f"alert: {alert.title}", detail, alert.attempt, alert.raised_step, level="warning"
    )


def _cleared(alert: Alert) -> TimelineEntry:
    assert alert.cleared_at is not None
    pair = f" ← {alert.source}" if alert.source else ""
    detail = f"{alert.agent}{pair}: raised at step {alert.raised_step}; {alert.cleared_reason or 'cleared'}"
    at, closed = alert.cleared_at.timestamp(), "ended with the run" if alert.ended_with_run else "cleared"
    return TimelineEntry(at, alert.pk, "alert", f"{closed}: {alert.title}", detail, alert.attempt, alert.cleared_step)
