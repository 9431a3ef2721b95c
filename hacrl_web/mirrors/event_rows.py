"""The stored numbers of a run as rows for a mirror: one for each step of each attempt, complete before it is sent."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast

from hacrl_web.runs.models import Run, TelemetryEvent
from hacrl_web.runs.telemetry.metric_series import event_numbers, number_or_none

EVENTS_AT_ONCE = 2000
TYPES = ("metrics", "evaluation", "progress")
MAX_KEY = 240
_SAFE = re.compile(r"[^A-Za-z0-9_\-./ @]")


def series_key(metric: str, agent: str, source: str = "", benchmark: str = "") -> str:
    """The name of a series elsewhere: agent/metric, of a pair agent/metric/from source.

    Characters that some destinations do not accept become _; then a short hash keeps names apart.
    """
    parts = [part for part in (agent, metric, f"from {source}" if source else "", benchmark) if part]
    name = "/".join(parts)
    safe = _SAFE.sub("_", name)[:MAX_KEY].strip()
    if safe == name:
        return safe
    return f"{safe[: MAX_KEY - 9]}.{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@dataclass
class EventRow:
    """As workers.mirrors.messages.Row."""

    seq: int
    time: float
    step: int
    attempt: int
    values: dict[str, float]
    rollouts: list[dict[str, Any]] = field(default_factory=list)  # added by rollout_rows.py


@dataclass
class CompleteRows:
    """rows: complete ones, oldest first.  read_seq: events up to it are in them, or hold no numbers."""

    rows: list[EventRow]
    read_seq: int
    is_at_end: bool


def read_rows(run: Run, after: int) -> CompleteRows:
    """The next rows after event `after`. A step ends with its progress, with the next step, or with the run."""
    events = TelemetryEvent.objects.filter(run=run, seq__gt=after, type__in=TYPES).order_by("seq")
    columns = ("seq", "attempt", "type", "step", "agent", "source", "time", Cast("payload", TextField()))
    records = list(events.values_list(*columns)[:EVENTS_AT_ONCE])
    is_at_end = len(records) < EVENTS_AT_ONCE
    rows: list[EventRow] = []
    row: EventRow | None = None
    read_seq = after
    for seq, attempt, kind, step, agent, source, time, text in records:
        if row is not None and (row.attempt, row.step) != (attempt, step):
            rows.append(row)
            read_seq, row = row.seq, None
        if kind == "progress" or step is None:
            if row is not None:
                row.seq = seq
                rows.append(row)
            read_seq, row = seq, None
            continue
        row = row or EventRow(seq, time, step, attempt, {})
        row.seq, row.time = seq, time
        row.values |= _values(kind, agent, source, text, run)
    if row is not None and ((run.is_terminal and is_at_end) or (not is_at_end and not rows)):
        rows.append(row)
        read_seq = row.seq
    return CompleteRows([one for one in rows if one.values], read_seq, is_at_end)


def _values(kind: str, agent: str, source: str, text: str, run: Run) -> dict[str, float]:
    if kind == "metrics":
        pairs = [(series_key(metric, agent, source), value) for metric, _, value in event_numbers(text)]
    else:
        payload: Mapping[str, Any] = json.loads(text)
        benchmark = str(payload.get("benchmark") or "")
        name = benchmark if benchmark in run.further_benchmarks else ""
        pairs = [(series_key(str(payload.get("metric")), agent, "", name), number_or_none(payload.get("value")))]
    return {name: value for name, value in pairs if value is not None and math.isfinite(value)}
