"""Spool records as rows of the telemetry tables, and the one fast way to insert them.

Rows are plain lists: model objects would cost more than the database does.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, get_args
from uuid import UUID

from django.db import DataError, IntegrityError, connection, models, transaction

from hacrl_web.runs.models import AnswerChunk, Contribution, QuestionChunk, RolloutSample, TelemetryEvent
from workers.contract.spec.environments import Role

log = logging.getLogger(__name__)
Record = dict[str, Any]
Row = list[Any]
# Key of a payload that was not parsed: the text of its spool line. No name that was read has a NUL (clean_texts).
PAYLOAD_TEXT = "\0payload"
REFUSED = "refused"  # key of a log event in place of a refused one: its type
HEAD = ("seq", "attempt", "time", "type", "step", "agent", "source")
_ONCE = 'ON CONFLICT ("run_id", "seq") DO NOTHING'
_LARGEST = 2**31 - 1
_NAME_CHARACTERS = 80  # of an agent
_INITIALS = {role: role[:1] for role in get_args(Role)}
_YEAR_10000 = 253_402_300_800  # beyond Python's dates: a page that shows such a time would fail


def integer(value: Any) -> int:
    """A whole number that every integer column can hold. Errors: ValueError, TypeError."""
    if type(value) is int and 0 <= value <= _LARGEST:  # nearly always; int() and the limits take three times as long
        return value
    return max(0, min(int(value or 0), _LARGEST))


def _number(value: Any) -> float:
    """Error: ValueError, for a text such as `inf` too."""
    if type(value) not in (int, float) or not isfinite(value):
        raise ValueError(f"{value!r:.80} is not a finite number")
    return float(value)


def _time(value: Any) -> float:
    number = float(value or 0)
    if not 0 <= number < _YEAR_10000:
        raise ValueError(f"{number} is not a time")
    return number


def _json_texts(value: Any) -> str:
    """A list of texts as JSON. Error: ValueError."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("a list of texts is needed")
    return json.dumps(value, ensure_ascii=False)


def _json_numbers(value: Any) -> str | None:
    """Numbers by name as JSON; None if there are none. Errors: ValueError, TypeError."""
    return json.dumps({str(name): _number(number) for name, number in value.items()}) if value else None


def _json_turns(value: Any) -> str | None:
    """Turns as JSON lists of role, failure and text; None if there are none.

    A search reads this text: so letters are as they are, and there are no words but those of the turns.
    """
    if not value:
        return None
    turns = [[_INITIALS[turn["role"]], int(turn["is_failed"]), str(turn["text"])] for turn in value]
    return json.dumps(turns, ensure_ascii=False).encode("utf-8", "replace").decode()


def _converter(column: models.Field) -> Callable[[Any], Any]:
    """Converts an event's value to the column's kind, within its limits. Errors: ValueError, TypeError."""
    limit = column.max_length
    convert: Callable[[Any], Any] = lambda value: str("" if value is None else value)[:limit]  # noqa: E731
    if isinstance(column, models.FloatField):
        convert = _number
    elif isinstance(column, models.IntegerField):
        convert = integer
    return (lambda value: None if value is None else convert(value)) if column.null else convert


def _payload(record: Record) -> str:
    """The fields that have no column, as JSON. Error: ValueError."""
    return json.dumps({key: value for key, value in record.items() if key not in HEAD}, allow_nan=False)


class TelemetryTable:
    """One telemetry table: its columns, and the statements that fill it. lists: columns of lists of texts, as JSON."""

    def __init__(self, model: type[models.Model], lists: Sequence[str] = ()) -> None:
        self.name = model._meta.db_table
        columns = {column.name: column for column in model._meta.concrete_fields if not column.primary_key}
        self.has_payload = "payload" in columns
        self.converters = {name: _converter(columns[name]) for name in columns if name not in ("run", "seq", "payload")}
        self.converters |= dict.fromkeys(lists, _json_texts)
        self.columns = ["run_id", "seq", *self.converters, *(["payload"] if self.has_payload else [])]
        self._names = ", ".join(f'"{name}"' for name in self.columns)
        self._target = f'"{self.name}" ({self._names})'

    def row(self, run_id: UUID, record: Record) -> Row:
        """The record's values, in the order of the columns. Errors: ValueError, TypeError."""
        # 32 hexadecimal digits: how SQLite stores a run's id, and how PostgreSQL reads one.
        row = [run_id.hex, record["seq"]]
        row += [convert(record.get(name)) for name, convert in self.converters.items()]
        if self.has_payload:
            row.append(record.get(PAYLOAD_TEXT) or _payload(record))
        return row

    def insert(self, rows: Sequence[Row]) -> None:
        """Store rows; a row whose (run, seq) is already stored stays as it is."""
        if connection.vendor != "postgresql":
            marks = ", ".join(["%s"] * len(self.columns))
            statement = f"INSERT INTO {self._target} VALUES ({marks}) {_ONCE}"
            with connection.cursor() as cursor:
                cursor.executemany(statement, rows)
            return
        try:
            with transaction.atomic():
                self._copy(self._target, rows)
        except IntegrityError:  # some are stored: a replay, which the shipper's cursor makes rare
            self._copy_new(rows)

    def _copy(self, target: str, rows: Sequence[Row]) -> None:
        statement = f"COPY {target} FROM STDIN"
        # Django does not translate what the driver raises at the end of a COPY.
        with connection.wrap_database_errors, connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def _copy_new(self, rows: Sequence[Row]) -> None:
        """COPY by way of a staging table, which can leave out stored rows, at twice the work for the server."""
        staging = f'"new_{self.name}"'
        with connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TEMPORARY TABLE IF NOT EXISTS {staging} ON COMMIT DELETE ROWS "
                f'AS SELECT {self._names} FROM "{self.name}" WITH NO DATA'
            )
            cursor.execute(f"DELETE FROM {staging}")
            self._copy(f"{staging} ({self._names})", rows)
            cursor.execute(f"INSERT INTO {self._target} SELECT {self._names} FROM {staging} {_ONCE}")


class EventTable(TelemetryTable):
    """The table of metrics events, which are the most by far: the usual ones become rows without a call per column."""

    def row(self, run_id: UUID, record: Record) -> Row:
        step, agent, source, time = record.get("step"), record.get("agent"), record.get("source"), record.get("time")
        if (
            record["type"] == "metrics"
            and PAYLOAD_TEXT in record
            and type(step) is int
            and 0 <= step <= _LARGEST
            and type(agent) is str
            and len(agent) <= _NAME_CHARACTERS
            and (source is None or (type(source) is str and len(source) <= _NAME_CHARACTERS))
            and type(time) is float
            and 0 <= time < _YEAR_10000
            and 0 <= record["attempt"] <= _LARGEST
        ):
            attempt, text = record["attempt"], record[PAYLOAD_TEXT]
            return [run_id.hex, record["seq"], attempt, "metrics", step, agent, source or "", time, text]
        return super().row(run_id, record)


Rows = dict[TelemetryTable, list[Row]]
_REFUSALS = (DataError, IntegrityError, ValueError, TypeError, OverflowError, AttributeError, LookupError)
EVENTS = EventTable(TelemetryEvent)
EVENTS.converters["time"] = _time
ROLLOUTS = TelemetryTable(RolloutSample)
ROLLOUTS.converters["rewards"] = _json_numbers
ROLLOUTS.converters["turns"] = _json_turns
TABLE_OF = {
    "rollout": ROLLOUTS,
    "contribution": TelemetryTable(Contribution),
    "questions": TelemetryTable(QuestionChunk, ("ids", "questions", "answers", "subjects", "difficulties")),
    "answers": TelemetryTable(AnswerChunk, ("marks", "majority", "responses")),
}


def rows_of(run_id: UUID, records: Sequence[Record]) -> Rows:
    """The records as rows, by table. Errors: _REFUSALS, of the first that has a value of a wrong kind."""
    rows: Rows = {}
    for record in records:
        table = TABLE_OF.get(record["type"], EVENTS)
        rows.setdefault(table, []).append(table.row(run_id, record))
    return rows


def rows_if_valid(run_id: UUID, records: Sequence[Record]) -> Rows | None:
    """The rows of `rows_of`; None if one of the records cannot be stored, which `insert` then finds.

    No error: the records are read, and would be lost with it.
    """
    try:
        return rows_of(run_id, records)
    except Exception:
        return None


def insert(run_id: UUID, records: Sequence[Record], rows: Rows | None = None) -> int:
    """Store records, within the caller's transaction; one that the database refuses is stored as a log event.

    rows: of these records, if they were made before.  Returns how many were refused.
    """
    try:
        rows = rows_of(run_id, records) if rows is None else rows
        with transaction.atomic():
            for table, of_table in rows.items():
                table.insert(of_table)
    except _REFUSALS as error:
        if len(records) > 1:
            middle = len(records) // 2
            return insert(run_id, records[:middle]) + insert(run_id, records[middle:])
        EVENTS.insert([EVENTS.row(run_id, refusal_record(run_id, records[0], str(error)))])
        return 1
    return 0


def clean_texts(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {clean_texts(key): clean_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_texts(item) for item in value]
    return value


def refusal_record(run_id: UUID, record: Record, reason: str) -> Record:
    """A warning that replaces a refused record, with its number, time and step, so that no number is missing."""
    kind, agent = record["type"][:16], str(record.get("agent") or "")[:80]
    message = f"An event of type {kind!r}{f' of {agent}' if agent else ''} could not be stored: {reason[:200]}"
    log.warning("run %s, seq %s: %s", run_id, record["seq"], message)
    body = {key: record[key] for key in ("seq", "attempt")} | {"type": "log", "level": "warning"}
    body |= {"message": message.replace("\x00", ""), REFUSED: kind.replace("\x00", "")}
    for name in ("time", "step"):
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # it may be the refused value
            body[name] = EVENTS.converters[name](record.get(name))
    return body
