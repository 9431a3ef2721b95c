"""What the broadcaster reads from the database: the events of a run after a cursor, already as JSON text.

The texts are created once per run and batch for all browsers; only the few numbers around them differ.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import TextField
from django.db.models.functions import Cast

from hacrl_web.accounts.models import User
from hacrl_web.runs.models import TERMINAL, Run, TelemetryEvent

BATCH_EVENTS = 500
_COLUMNS = ("seq", "attempt", "type", "step", "agent", "source", "time")
_STATUS = ("state", "desired_state", "step", "total_steps", "attempt", "progress", "reason")


def frame_text(value: Any) -> str:
    """A value as JSON text that browsers can parse (no NaN)."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True)
class EventBatch:
    """Consecutive events of a run up to `seq`, as the inside of a JSON list."""

    seq: int
    text: str
    count: int

    @property
    def is_full(self) -> bool:
        return self.count >= BATCH_EVENTS


def events_frame(run_id: UUID, prev: int, seq: int, texts: list[str]) -> str:
    """The frame that takes a cursor from `prev` to `seq`."""
    return f'{{"op":"events","run":"{run_id}","prev":{prev},"seq":{seq},"events":[{",".join(texts)}]}}'


def read_batch(
    run_id: UUID, after: int, up_to: int | None = None, limit: int | None = None, types: Sequence[str] = ()
) -> EventBatch:
    """The next events after a cursor (and not beyond `up_to`), at most `limit`, or one batch; of these types alone."""
    narrowed: dict[str, Any] = {} if up_to is None else {"seq__lte": up_to}
    if types:
        narrowed["type__in"] = list(types)
    # The payload stays the text that is stored: parsing and writing it again would be wasted work.
    rows = list(
        TelemetryEvent.objects.filter(run_id=run_id, seq__gt=after, **narrowed)
        .order_by("seq")
        .values_list(*_COLUMNS, Cast("payload", TextField()))[: limit or BATCH_EVENTS]
    )
    text = ",".join(f'{frame_text(dict(zip(_COLUMNS, row, strict=False)))[:-1]},"payload":{row[-1]}}}' for row in rows)
    return EventBatch(rows[-1][0] if rows else after, text, len(rows))


@dataclass(frozen=True)
class Status:
    """The text of the `run` frame, and the number of the run's last stored event."""

    last_seq: int
    text: str
    is_terminal: bool = False


def read_status(run_ids: list[UUID]) -> dict[UUID, Status]:
    """The status of those of these runs that exist."""
    statuses = {}
    for row in Run.objects.filter(pk__in=run_ids).order_by().values("pk", "last_seq", *_STATUS):
        body = {"op": "run", "run": str(row["pk"]), **{name: row[name] for name in _STATUS}}
        statuses[row["pk"]] = Status(row["last_seq"], frame_text(body), row["state"] in TERMINAL)
    return statuses


def find_visible(user: User, run_id: UUID) -> Status | None:
    """The status of a run; None if the user may not see it or it does not exist."""
    if not Run.objects.visible_to(user).filter(pk=run_id).exists():
        return None
    return read_status([run_id]).get(run_id)
