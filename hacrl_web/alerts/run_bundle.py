"""Alerts in the bundle of a run (insight/bundle)."""

from __future__ import annotations

from hacrl_web.alerts.models import Alert, Cursor
from hacrl_web.insight.bundle.layout import AlertFacts, RunFile, columns_as
from hacrl_web.runs.models import Run


def add_rows(content: RunFile, run: Run) -> None:
    """Add what is stored of the run to the file run.json."""
    content.alerts = [columns_as(AlertFacts, alert) for alert in Alert.objects.filter(run=run).order_by("pk")]


def begin_import(run: Run) -> None:
    Cursor.objects.create(run=run, is_done=True)  # its alerts were raised where it trained


def finish_import(run: Run, content: RunFile, last_seq: int) -> None:
    Alert.objects.bulk_create(Alert(run=run, **alert.model_dump()) for alert in content.alerts)
    Cursor.objects.filter(run=run).update(seq=last_seq)
