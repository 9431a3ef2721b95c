"""Spool records as rows of the telemetry tables, and the one fast way to insert them.

Plain tuples and one statement: model objects would cost more than the database does.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.db import DataError, IntegrityError, connection, models, transaction

from hacrl_web.runs.models import AnswerChunk, Contribution, QuestionChunk, RolloutSample, TelemetryEvent

log = logging.getLogger(__name__)
Record = dict[str, Any]
Row = tuple[Any, ...]
PAYLOAD_TEXT = "payload text"  # key of a record whose payload is still the text of its spool line
_HEAD = ("seq", "attempt", "time", "type", "step", "agent", "source")
_ONCE = 'ON CONFLICT ("run_id", "seq") DO NOTHING'
_LARGEST = 2**31 - 1
_YEAR_10000 = 253_402_300_800  # no calendar goes on: a page that shows such a time would fail


def integer(value: Any) -> int:
    """A whole number that every integer column holds. Errors: ValueError, TypeError."""
    return max(0, min(int(value or 0), _LARGEST))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _time(value: Any) -> float:
    number = float(value)
    if not 0 <= number < _YEAR_10000:
        raise ValueError(f"{number} is no time")
    return number


def _text(limit: int | None) -> Callable[[Any], str]:
    return lambda value: str("" if value is None else value)[:limit]


def clean_texts(value: Any) -> str:
    """A list of texts as JSON. Error: ValueError."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("a list of texts is needed")
    return json.dumps(value, ensure_ascii=False)


def _or_none(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else make(value)


def _maker(column: models.Field) -> Callable[[Any], Any]:
    """What makes the stored value of an event's value: of the column's kind and within its limits."""
    make: Callable[[Any], Any] = _text(column.max_length)
    if isinstance(column, models.FloatField):
        make = _number
    elif isinstance(column, models.IntegerField):
        make = integer
    return _or_none(make) if column.null else make


class TelemetryTable:
    """One telemetry table: its columns, and the statements that fill it."""

    def __init__(self, model: type[models.Model]) -> None:
        self.name = model._meta.db_table
        columns = [column for column in model._meta.concrete_fields if not column.primary_key]
        self.makers = {c.name: _maker(c) for c in columns if c.name not in ("run", "seq", "payload")}
        self.columns = ["run_id", "seq", *self.makers, *(c.name for c in columns if c.name == "payload")]

    def row(self, run_id: UUID, record: Record) -> Row:
        values = tuple(make(record.get(name)) for name, make in self.makers.items())
        if self.columns[-1] != "payload":
            return (run_id, record["seq"], *values)
        return (run_id, record["seq"], *values, _payload(record))

    def insert(self, rows: Sequence[Row]) -> None:
        """Store rows; those whose (run, seq) is there already are kept as they are."""
        if connection.vendor != "postgresql":
            marks = ", ".join(["%s"] * len(self.columns))
            statement = f"INSERT INTO {self._target} VALUES ({marks}) {_ONCE}"
            with connection.cursor() as cursor:
                cursor.executemany(statement, [(row[0].hex, *row[1:]) for row in rows])
            return
        try:
            with transaction.atomic():
                self._copy(self._target, rows)
        except IntegrityError:  # some are there: a replay, which the shipper's cursor makes rare
            self._copy_new(rows)

    @property
    def _names(self) -> str:
        return ", ".join(f'"{name}"' for name in self.columns)

    @property
    def _target(self) -> str:
        return f'"{self.name}" ({self._names})'

    def _copy(self, target: str, rows: Sequence[Row]) -> None:
        statement = f"COPY {target} FROM STDIN"
        # What the driver raises at the end of a COPY would pass Django by.
        with connection.wrap_database_errors, connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def _copy_new(self, rows: Sequence[Row]) -> None:
        """By way of a staging table, which COPY needs to leave out what is there: twice the work for the server."""
        staging = f'"new_{self.name}"'
        with connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TEMPORARY TABLE IF NOT EXISTS {staging} ON COMMIT DELETE ROWS "
                f'AS SELECT {self._names} FROM "{self.name}" WITH NO DATA'
            )
            cursor.execute(f"DELETE FROM {staging}")
            self._copy(f"{staging} ({self._names})", rows)
            cursor.execute(f"INSERT INTO {self._target} SELECT {self._names} FROM {staging} {_ONCE}")


def _payload(record: Record) -> str:
    if PAYLOAD_TEXT in record:
        return str(record[PAYLOAD_TEXT])
    return json.dumps({key: value for key, value in record.items() if key not in _HEAD}, allow_nan=False)


EVENTS = TelemetryTable(TelemetryEvent)
ROLLOUTS = TelemetryTable(RolloutSample)
CONTRIBUTIONS = TelemetryTable(Contribution)
QUESTIONS = TelemetryTable(QuestionChunk)
ANSWERS = TelemetryTable(AnswerChunk)
for _table, _lists in (
    (QUESTIONS, ("ids", "questions", "answers", "subjects", "difficulties")),
    (ANSWERS, ("marks", "majority", "responses")),
):
    _table.makers |= dict.fromkeys(_lists, clean_texts)
EVENTS.makers["time"] = lambda value: _time(value or 0)
TABLE_OF = {"rollout": ROLLOUTS, "contribution": CONTRIBUTIONS, "questions": QUESTIONS, "answers": ANSWERS}


def insert(run_id: UUID, records: Sequence[Record]) -> None:
    """Store records, within the caller's transaction; one that the database refuses is stored as a log event."""
    try:
        rows: dict[TelemetryTable, list[Row]] = {}
        for record in records:
            table = TABLE_OF.get(record["type"], EVENTS)
            rows.setdefault(table, []).append(table.row(run_id, record))
        with transaction.atomic():
            for table, of_table in rows.items():
                table.insert(of_table)
    except (DataError, IntegrityError, ValueError, TypeError, OverflowError) as error:
        if len(records) > 1:
            middle = len(records) // 2
            insert(run_id, records[:middle])
            insert(run_id, records[middle:])
        else:
            EVENTS.insert([EVENTS.row(run_id, stand_in(run_id, records[0], str(error)))])


def stand_in(run_id: UUID, record: Record, reason: str) -> Record:
    """A warning with the refused record's number, time and step: no number is missing, and it stands in its place."""
    kind, agent = record["type"][:16], str(record.get("agent") or "")[:80]
    message = f"An event of type {kind!r}{f' of {agent}' if agent else ''} could not be stored: {reason[:200]}"
    log.warning("run %s, seq %s: %s", run_id, record["seq"], message)
    body = {key: record[key] for key in ("seq", "attempt")} | {"type": "log", "level": "warning"}
    body["message"] = message.replace("\x00", "")
    for name in ("time", "step"):
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # it may be just what was refused
            body[name] = EVENTS.makers[name](record.get(name))
    return body
