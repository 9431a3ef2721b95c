"""All that happened to a run in one list by time: its states, its trainer's words, its alerts, what was left out.

Four tables are read from a moment backwards, and merged: a page never reads more than a page of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q

from hacrl_web.alerts.models import Alert
from hacrl_web.runs.models import Run
from hacrl_web.runs.templatetags.show import count, plain_significant, size
from hacrl_web.runs.worker.resumption import resumption_of

PAGE = 100
# Name in the address, what the filter says.
KINDS = (
    ("state", "state"),
    ("trainer", "trainer start and end"),
    ("evaluation", "evaluation"),
    ("checkpoint", "checkpoint"),
    ("incident", "incident"),
    ("alert", "alert"),
    ("left_out", "left out"),
)
_TYPES = {
    "trainer": ("started", "finished"),
    "evaluation": ("evaluation",),
    "checkpoint": ("checkpoint",),
    "left_out": ("left_out",),
}


@dataclass(frozen=True)
class Item:
    """One line. state, agent: shown as a badge or a chip where there is one; level: of the words."""

    at: float
    order: int  # among those of the same moment and kind
    kind: str
    what: str
    detail: str
    attempt: int | None = None
    step: int | None = None
    state: str = ""
    agent: str = ""
    level: str = "info"

    @property
    def when(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


def event_page(run: Run, kinds: Iterable[str], before: float | None) -> tuple[list[Item], float | None]:
    """The newest PAGE items of these kinds from before a moment, and the moment where the next page begins.

    Items of the same moment stand on one page, so that none is passed over.
    """
    items: list[Item] = []
    has_more = False
    for kind in kinds:
        for rows, column, make in _sources(run, kind):
            newest, is_cut = _whole_moments(rows, column, before)
            items += [make(row) for row in newest]
            has_more = has_more or is_cut
    items.sort(key=lambda item: (item.at, item.order), reverse=True)
    if len(items) <= PAGE and not has_more:
        return items, None
    edge = items[min(PAGE, len(items)) - 1].at
    recent = [item for item in items if item.at >= edge]
    return recent, edge if has_more or len(recent) < len(items) else None


def _sources(run: Run, kind: str) -> list[tuple[Any, str, Callable[[Any], Item]]]:
    """(rows, their column of time, what makes an item of one) of a kind."""
    if kind == "state":
        return [(run.status_changes.all(), "at", _of_change)]
    if kind == "alert":
        alerts = Alert.objects.filter(run=run)
        return [(alerts, "raised_at", _raised), (alerts.filter(cleared_at__isnull=False), "cleared_at", _cleared)]
    if kind == "incident":
        incidents = Q(type="log", payload__incident__isnull=False) & ~Q(payload__incident=None)
        return [(run.events.filter(incidents), "time", _of_event)]
    return [(run.events.filter(type__in=_TYPES[kind]), "time", _of_event)]


def _whole_moments(rows: Any, column: str, before: float | None) -> tuple[list[Any], bool]:
    """All rows; or, and True, more than a page of the newest, with all of the oldest one's moment."""
    is_time = column == "time"
    if before is not None:
        rows = rows.filter(**{f"{column}__lt": before if is_time else datetime.fromtimestamp(before, UTC)})
    newest = list(rows.order_by(f"-{column}", "-pk")[: PAGE + 1])
    if len(newest) <= PAGE:
        return newest, False
    edge = getattr(newest[-1], column)
    newest = [row for row in newest if getattr(row, column) > edge]
    return [*newest, *rows.filter(**{column: edge}).order_by("-pk")], True


def _of_change(change: Any) -> Item:
    what = f"{change.from_state} → {change.to_state}" if change.from_state else change.to_state
    at = change.at.timestamp()
    return Item(at, change.pk, "state", what, change.reason, change.attempt, state=change.to_state)


def _raised(alert: Alert) -> Item:
    at, pair = alert.raised_at.timestamp(), f" ← {alert.source}" if alert.source else ""
    detail = f"{alert.agent}{pair}: {alert.text}"
    return Item(
        at, alert.pk, "alert", f"alert: {alert.title}", detail, alert.attempt, alert.raised_step, level="warning"
    )


def _cleared(alert: Alert) -> Item:
    assert alert.cleared_at is not None
    pair = f" ← {alert.source}" if alert.source else ""
    detail = f"{alert.agent}{pair}: raised at step {alert.raised_step}; {alert.cleared_reason or 'cleared'}"
    at = alert.cleared_at.timestamp()
    return Item(at, alert.pk, "alert", f"cleared: {alert.title}", detail, alert.attempt, alert.cleared_step)


def _of_event(event: Any) -> Item:
    body, kind, level, agent = event.payload, event.type, "info", ""
    if kind == "started":
        resumed = resumption_of(event)
        what, detail = "trainer started", f"on {body.get('device', '')}, from step {count(event.step)}"
        detail += f". {resumed}" if resumed else ""
    elif kind == "finished":
        what, detail = f"trainer {body.get('outcome', '')}", str(body.get("reason") or "")
        level = {"failed": "error", "interrupted": "warning"}.get(str(body.get("outcome")), "info")
    elif kind == "evaluation":
        share = f"({count(body.get('correct'))} of {count(body.get('asked'))}, {body.get('benchmark', '')})"
        what, detail, agent = "evaluation", f"{plain_significant(body.get('value'))} {share}", event.agent
    elif kind == "checkpoint":
        what, detail = "checkpoint", f"{body.get('path', '')}, {size(body.get('size_bytes'))}"
    elif kind == "left_out":
        counts = ", ".join(f"{count(number)} of type {name}" for name, number in sorted(body["counts"].items()))
        what, detail, level = "events left out", f"{counts} ({body['reason']})", "warning"
    else:
        what, detail = str(body.get("incident")), str(body.get("message") or "")
        level = str(body.get("level") or "warning")
    kind = {"started": "trainer", "finished": "trainer", "log": "incident"}.get(kind, kind)
    return Item(event.time, event.seq, kind, what, detail, event.attempt, event.step, agent=agent, level=level)
