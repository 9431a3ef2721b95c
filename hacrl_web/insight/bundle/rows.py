"""Stored events of a run as records of a spool: what TelemetryTable wrote, read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from typing import Any

from django.db.models import Model

from hacrl_web.runs.models import AnswerChunk, Contribution, QuestionChunk, RolloutSample, Run, TelemetryEvent

Record = dict[str, Any]
ROWS_AT_ONCE = 500
# type -> the table of its rows, and the columns that hold JSON as text.
TABLES: dict[str, tuple[type[Model], tuple[str, ...]]] = {
    "rollout": (RolloutSample, ("rewards", "turns")),
    "contribution": (Contribution, ()),
    "questions": (QuestionChunk, ("ids", "subjects", "difficulties", "answers", "questions")),
    "answers": (AnswerChunk, ("marks", "majority", "responses")),
}


def stored_records(run: Run) -> Iterator[Record]:
    """All stored events of a run, in the order of seq."""
    yield from merge(_events(run), *(_rows(run, kind) for kind in TABLES), key=itemgetter("seq"))


def _events(run: Run) -> Iterator[Record]:
    head = ("seq", "attempt", "time", "type", "step", "agent", "source")
    rows = TelemetryEvent.objects.filter(run=run).order_by("seq").values_list(*head, "payload")
    for *values, payload in rows.iterator(chunk_size=ROWS_AT_ONCE):
        yield {**dict(zip(head, values, strict=True)), **payload}


def _rows(run: Run, kind: str) -> Iterator[Record]:
    model, texts = TABLES[kind]
    names = [field.name for field in model._meta.concrete_fields if field.name not in ("id", "run")]
    rows = model._default_manager.filter(run=run).order_by("seq").values_list(*names)
    for values in rows.iterator(chunk_size=ROWS_AT_ONCE):
        record = dict(zip(names, values, strict=True)) | {"type": kind}
        for name in texts:
            if record[name] is not None:
                record[name] = json.loads(record[name])
        if record.get("turns"):  # stored as (first letter of the role, whether it failed, text)
            names_of_turn = ("role", "is_failed", "text")
            record["turns"] = [dict(zip(names_of_turn, turn, strict=True)) for turn in record["turns"]]
        yield record
