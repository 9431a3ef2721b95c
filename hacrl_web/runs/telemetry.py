"""From spool to rows: the shipper copies a run's events to the database, each exactly once, in order.

The byte offset and the last seq are columns of the run, written in the transaction that stores the events and fenced by
the attempt: a crash at any moment repeats nothing and loses nothing, and who lost the lease writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import DataError, IntegrityError, models, transaction

from hacrl_web.runs.models import Contribution, RolloutSample, Run, TelemetryEvent
from hacrl_web.runs.redis_client import ring_bell
from workers.events import SPOOL_NAME, DamagedLine, decode

MAX_LINES = 2000
MAX_BYTES = 4 * 2**20
MAX_LINE_BYTES = 16 * 2**20
MAX_SEQ = 2**62
log = logging.getLogger(__name__)
Record = dict[str, Any]


class LeaseLost(RuntimeError):
    """Another attempt owns the run, or it has ended: this supervisor may write nothing more."""


@dataclass
class Batch:
    """Records read from the spool and the offset after them."""

    records: list[Record] = field(default_factory=list)
    offset: int = 0
    lines: int = 0
    size: int = 0  # bytes

    @property
    def is_full(self) -> bool:
        return self.lines >= MAX_LINES or self.size >= MAX_BYTES


class Shipper:
    """Copies one run's spool to the database for one attempt."""

    def __init__(self, run_id: UUID, run_dir: Path, attempt: int) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self.path = run_dir / SPOOL_NAME
        run = Run.objects.only("last_seq", "spool_offset").get(pk=run_id)
        self.last_seq = run.last_seq
        self.offset = run.spool_offset if self._follows(run.spool_offset, run.last_seq) else 0

    def _follows(self, offset: int, last_seq: int) -> bool:
        """True where the stored offset fits this spool: the next line is the next event, or there is none yet."""
        try:
            if self.path.stat().st_size < offset:
                return False
            with open(self.path, "rb") as spool:
                spool.seek(offset)
                line = spool.readline(MAX_LINE_BYTES)
            return not line.endswith(b"\n") or decode(line)["seq"] == last_seq + 1
        except FileNotFoundError:
            return offset == 0
        except (DamagedLine, KeyError):
            return False

    def ship(self) -> Batch:
        """Store what is new, at most one batch. Errors: LeaseLost, and the database's, after which to try again."""
        batch = self._read()
        if batch.lines:
            self._write(batch)
            self.offset = batch.offset
            if batch.records:
                self.last_seq = batch.records[-1]["seq"]
                ring_bell(self.run_id)
        return batch

    def _read(self) -> Batch:
        batch = Batch(offset=self.offset)
        last = self.last_seq
        try:
            spool = open(self.path, "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            return batch
        with spool:
            spool.seek(self.offset)
            while not batch.is_full:
                line = spool.readline()
                if not line.endswith(b"\n"):  # the end, or a line that is still being written
                    break
                batch.lines += 1
                batch.offset += len(line)
                batch.size += len(line)
                record = self._decode(line)
                if record is not None and record["seq"] > last:
                    last = record["seq"]
                    batch.records.append(record)
        return batch

    def _decode(self, line: bytes) -> Record | None:
        try:
            record = decode(line)
        except (DamagedLine, ValueError) as error:
            log.warning("run %s: a line of the spool is skipped: %s", self.run_id, error)
            return None
        seq, attempt = record.get("seq"), record.get("attempt")
        is_event = isinstance(seq, int) and 0 < seq < MAX_SEQ and isinstance(attempt, int)
        if not is_event or not isinstance(record.get("type"), str):
            log.warning("run %s: a line of the spool is no event: %.80r", self.run_id, line)
            return None
        # The databases refuse NUL and half surrogate pairs, which a model may well write.
        return _clean(record) if b"\\u0000" in line or b"\\ud" in line else record

    def _write(self, batch: Batch) -> None:
        columns: dict[str, Any] = {"spool_offset": batch.offset}
        if batch.records:
            columns |= {"last_seq": batch.records[-1]["seq"], **_progress(batch.records)}
        with transaction.atomic():
            # The fence first: it also locks the row against other writers for the rest of the transaction.
            if not Run.objects.held_by(self.run_id, self.attempt).update(**columns):
                raise LeaseLost(f"attempt {self.attempt} no longer owns run {self.run_id}")
            _insert(self.run_id, batch.records)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


def _progress(records: Sequence[Record]) -> dict[str, Any]:
    """Columns of the run that the last word of `progress` and `started` decides."""
    columns: dict[str, Any] = {}
    for record in records:
        if record["type"] in ("progress", "started"):
            columns["step"] = _integer(record.get("step"))
            columns["total_steps"] = _integer(record.get("total_steps"))
        if record["type"] == "progress":
            columns["progress"] = {k: v for k, v in record.items() if k not in ("seq", "attempt", "time", "type")}
    return columns


def _insert(run_id: UUID, records: Sequence[Record]) -> None:
    """Store records; one that the database cannot take is stored as a log event that says so."""
    try:
        with transaction.atomic():
            for model, rows in _rows(run_id, records).items():
                model.objects.bulk_create(rows, ignore_conflicts=True)
    except (DataError, IntegrityError, ValueError, TypeError, OverflowError) as error:
        if len(records) > 1:
            middle = len(records) // 2
            _insert(run_id, records[:middle])
            _insert(run_id, records[middle:])
        elif records:
            _insert_stand_in(run_id, records[0], error)


def _insert_stand_in(run_id: UUID, record: Record, error: Exception) -> None:
    message = f"An event of type {str(record['type'])[:16]!r} could not be stored: {str(error)[:200]}"
    log.warning("run %s, seq %s: %s", run_id, record["seq"], message)
    body = {"level": "warning", "message": message.replace("\x00", "")}
    stand_in = _event(run_id, {"seq": record["seq"], "attempt": record["attempt"], "type": "log", **body})
    TelemetryEvent.objects.bulk_create([stand_in], ignore_conflicts=True)


def _rows(run_id: UUID, records: Sequence[Record]) -> dict[type[models.Model], list[Any]]:
    rows: dict[type[models.Model], list[Any]] = {TelemetryEvent: [], RolloutSample: [], Contribution: []}
    for record in records:
        if record["type"] == "rollout":
            rows[RolloutSample].append(_columns_of(RolloutSample, run_id, record))
        elif record["type"] == "contribution":
            rows[Contribution].append(_columns_of(Contribution, run_id, record))
        else:
            rows[TelemetryEvent].append(_event(run_id, record))
    return {model: found for model, found in rows.items() if found}


_EVENT_COLUMNS = frozenset({"seq", "attempt", "time", "type", "step", "agent", "source"})


def _event(run_id: UUID, record: Record) -> TelemetryEvent:
    step = record.get("step")
    return TelemetryEvent(
        run_id=run_id,
        seq=record["seq"],
        attempt=_integer(record.get("attempt")),
        type=record["type"][:16],
        step=None if step is None else _integer(step),
        agent=str(record.get("agent") or "")[:80],
        source=str(record.get("source") or "")[:80],
        payload={key: value for key, value in record.items() if key not in _EVENT_COLUMNS},
        time=_number(record.get("time")) or 0.0,
    )


def _integer(value: Any) -> int:
    return max(0, min(int(value or 0), 2**31 - 1))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _column_makers(model: type[models.Model]) -> dict[str, Any]:
    """For each column of `model` that an event fills: what makes the stored value of the event's."""
    makers: dict[str, Any] = {}
    for column in model._meta.concrete_fields:
        if column.name in ("id", "run", "seq"):
            continue
        if isinstance(column, models.FloatField):
            makers[column.name] = _number
        elif isinstance(column, models.IntegerField):
            makers[column.name] = (lambda v: None if v is None else _integer(v)) if column.null else _integer
        elif column.null:
            makers[column.name] = lambda v: None if v is None else str(v)[:200]
        else:
            limit = column.max_length
            makers[column.name] = lambda v, limit=limit: str("" if v is None else v)[:limit]
    return makers


_MAKERS = {model: _column_makers(model) for model in (RolloutSample, Contribution)}


def _columns_of(model: type[models.Model], run_id: UUID, record: Record) -> models.Model:
    columns = {name: make(record.get(name)) for name, make in _MAKERS[model].items()}
    return model(run_id=run_id, seq=record["seq"], **columns)
