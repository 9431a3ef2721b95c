"""From spool to rows: the shipper copies a run's events to the database, each exactly once, in order.

The byte offset and the last seq are columns of the run, written in the transaction that stores the events and fenced by
the attempt: a crash at any moment repeats nothing and loses nothing, and who lost the lease writes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction

from hacrl_web.runs.models import Run
from hacrl_web.runs.redis_client import ring_bell
from hacrl_web.runs.rows import PAYLOAD_TEXT, Record, insert, integer
from workers.events import SPOOL_NAME, DamagedLine, decode, verified

MAX_LINES = 2000
MAX_BYTES = 4 * 2**20
MAX_LINE_BYTES = 16 * 2**20
MAX_SEQ = 2**62
log = logging.getLogger(__name__)


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
            record = _parse(line)
        except (DamagedLine, ValueError) as error:
            log.warning("run %s: a line of the spool is skipped: %s", self.run_id, error)
            return None
        seq, attempt = record.get("seq"), record.get("attempt")
        is_event = isinstance(seq, int) and 0 < seq < MAX_SEQ and isinstance(attempt, int)
        if not is_event or not isinstance(record.get("type"), str):
            log.warning("run %s: a line of the spool is no event: %.80r", self.run_id, line)
            return None
        return record

    def _write(self, batch: Batch) -> None:
        columns: dict[str, Any] = {"spool_offset": batch.offset}
        if batch.records:
            columns |= {"last_seq": batch.records[-1]["seq"], **_progress(batch.records)}
        with transaction.atomic():
            # The fence first: it also locks the row against other writers for the rest of the transaction.
            if not Run.objects.held_by(self.run_id, self.attempt).update(**columns):
                raise LeaseLost(f"attempt {self.attempt} no longer owns run {self.run_id}")
            insert(self.run_id, batch.records)


def _parse(line: bytes) -> Record:
    """The record of a spool line; the numbers of a metrics event stay the text they are, which is most of the work."""
    text = verified(line)
    # The databases refuse NUL and half surrogate pairs, which a model may well write.
    if b"\\u0000" in text or b"\\ud" in text:
        return _clean(json.loads(text))
    # In a string this mark would have a backslash before each quote.
    head, mark, numbers = text.partition(b',"values":')
    if not mark or b'"type":"metrics"' not in head:
        return json.loads(text)
    return {**json.loads(head + b"}"), PAYLOAD_TEXT: '{"values":' + numbers.decode()}


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
            columns["step"] = integer(record.get("step"))
            columns["total_steps"] = integer(record.get("total_steps"))
        if record["type"] == "progress":
            columns["progress"] = {k: v for k, v in record.items() if k not in ("seq", "attempt", "time", "type")}
    return columns
