"""The list of all that happened to a run, by time: its states, its trainer's reports, events left out, alerts.

Several tables are read from a moment backwards, and merged: a page never reads more than a page of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from hacrl_web.features import feature_modules
from hacrl_web.insight.run_tabs.timeline_entry import Source, TimelineEntry
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.resumption import resumption_of
from hacrl_web.runs.templatetags.formats import count, plain_score, size

PAGE = 100
YEAR_10000 = 253_402_300_800
FEATURES = feature_modules("run_events")
# Kind in the address -> label of its filter.
KINDS: dict[str, str] = {
    "state": "state",
    "trainer": "trainer start and end",
    "evaluation": "evaluation",
    "checkpoint": "checkpoint",
    "incident": "incident",
    **{kind: label for module in FEATURES for kind, label in module.KINDS.items()},
    "left_out": "skipped",
}
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(KINDS)]


def event_page(run: Run, kinds: Iterable[str], before: float | None) -> tuple[list[TimelineEntry], float | None]:
    """The newest PAGE entries of these kinds from before a moment, and the moment where the next page begins.

    All entries of a moment are on one page, so that no page skips any.
    """
    entries: list[TimelineEntry] = []
    has_more = False
    for kind in kinds:
        for rows, column, entry_of in _sources(run, kind):
            newest, is_cut = _whole_moments(rows, column, before)
            entries += [entry_of(row) for row in newest]
            has_more = has_more or is_cut
    entries.sort(key=lambda entry: (entry.at, entry.order), reverse=True)
    if len(entries) <= PAGE and not has_more:
        return entries, None
    edge = entries[min(PAGE, len(entries)) - 1].at
    recent = [entry for entry in entries if entry.at >= edge]
    return recent, edge if has_more or len(recent) < len(entries) else None


def _sources(run: Run, kind: str) -> list[Source]:
    """The tables from which the entries of a kind are read."""
    if kind == "state":
        return [(run.status_changes.all(), "at", _of_change)]
    for module in FEATURES:
        if kind in module.KINDS:
            sources: list[Source] = module.entry_sources(run)
            return sources
    if kind == "incident":
        return [(run.events.incidents(), "time", _of_event)]
    types = {"trainer": ("started", "finished"), "evaluation": ("evaluation", "harness")}.get(kind, (kind,))
    return [(run.events.filter(type__in=types), "time", _of_event)]


def _whole_moments(rows: Any, column: str, before: float | None) -> tuple[list[Any], bool]:
    """The newest rows, with all rows of the last moment, and whether there may be earlier ones."""
    is_time = column == "time"
    if before is not None:
        rows = rows.filter(**{f"{column}__lt": before if is_time else datetime.fromtimestamp(before, UTC)})
    newest = list(rows.order_by(f"-{column}", "-pk")[: PAGE + 1])
    if len(newest) <= PAGE:
        return newest, False
    edge = getattr(newest[-1], column)
    newest = [row for row in newest if getattr(row, column) > edge]
    return [*newest, *rows.filter(**{column: edge}).order_by("-pk")], True


def _of_change(change: Any) -> TimelineEntry:
    what = f"{change.from_state} → {change.to_state}" if change.from_state else change.to_state
    at = change.at.timestamp()
    return TimelineEntry(at, change.pk, "state", what, change.reason, change.attempt, state=change.to_state)


def _of_event(event: Any) -> TimelineEntry:
    body, kind, level, agent = event.payload, event.type, "info", ""
    if kind == "started":
        resumed = resumption_of(event)
        what, detail = "trainer started", f"on {body.get('device', '')}, from step {count(event.step)}"
        detail += f". {resumed}" if resumed else ""
        settled = [f"{name} {value}" for values in body.get("settled", {}).values() for name, value in values.items()]
        detail += f"; {', '.join(settled)}" if settled else ""
    elif kind == "finished":
        what, detail = f"trainer {body.get('outcome', '')}", str(body.get("reason") or "")
        level = {"failed": "error", "interrupted": "warning"}.get(str(body.get("outcome")), "info")
    elif kind == "evaluation":
        share = f"({count(body.get('correct'))} of {count(body.get('asked'))}, {body.get('benchmark', '')})"
        what, detail, agent = "evaluation", f"{plain_score(body.get('value'))} {share}", event.agent
    elif kind == "harness":
        scores = [f"{one.get('metric')} {plain_score(one.get('value'))}" for one in body.get("scores") or ()]
        what, agent = f"{body.get('harness')} {body.get('version')}", event.agent
        detail = f"{body.get('task')}: {', '.join(scores)}"
    elif kind == "checkpoint":
        what, detail = "checkpoint", f"{body.get('path', '')}, {size(body.get('size_bytes'))}"
    elif kind == "left_out":
        counts = ", ".join(f"{count(number)} of type {name}" for name, number in sorted(body["counts"].items()))
        what, detail, level = "events skipped", f"{counts} ({body['reason']})", "warning"
    else:
        what, detail = str(body.get("incident")), str(body.get("message") or "")
        level = str(body.get("level") or "warning")
    kind = {"started": "trainer", "finished": "trainer", "log": "incident", "harness": "evaluation"}.get(kind, kind)
    return TimelineEntry(event.time, event.seq, kind, what, detail, event.attempt, event.step, agent=agent, level=level)
