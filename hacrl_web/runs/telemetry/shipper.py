"""The shipper copies a run's events from the spool to the database, each exactly once, in order.

The byte offset and the last seq are columns of the run, written in the transaction that stores the events and fenced by
the attempt: a crash at any moment repeats and loses no event, and a supervisor without the lease writes nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from hacrl_web.runs.models import Run
from hacrl_web.runs.pubsub import publish_update
from hacrl_web.runs.telemetry.admission import Admission, EventRefused
from hacrl_web.runs.telemetry.scores import score_of
from hacrl_web.runs.telemetry.tables import PAYLOAD_TEXT, Record, insert, integer, refusal_record
from workers.contract.events import DamagedLine, Log, decode, encode, verified
from workers.contract.spool import SPOOL_NAME, rotated

MAX_LINES = 2000
MAX_BYTES = 4 * 2**20
MAX_LINE_BYTES = 16 * 2**20
MAX_SEQ = 2**62
_HEAD = re.compile(rb'\{"seq": ?(\d{1,18}), ?"attempt": ?(\d{1,9}), ?"time": ?(\d{1,12}(?:\.\d+)?),')
Fence = Callable[[UUID, int], QuerySet[Run]]
log = logging.getLogger(__name__)


class LeaseLost(RuntimeError):
    """Another attempt owns the run, or the run has ended: this supervisor may write nothing more."""

    def __init__(self, attempt: int) -> None:
        super().__init__(f"attempt {attempt} no longer owns it")


@dataclass
class SpoolBatch:
    """Records read from the spool and the offset after them."""

    records: list[Record] = field(default_factory=list)
    offset: int = 0
    lines: int = 0
    size: int = 0  # bytes
    is_at_end: bool = False  # of a full file, which gets no more lines

    @property
    def is_full(self) -> bool:
        return self.lines >= MAX_LINES or self.size >= MAX_BYTES


class Shipper:
    """Copies one run's spool to the database for one attempt, full files first.

    fence: the run as a query of one row while this shipper may write.
    """

    def __init__(self, run_id: UUID, run_dir: Path, attempt: int, fence: Fence | None = None) -> None:
        self.fence = fence or Run.objects.held_by
        self.run_id = run_id
        self.run_dir = run_dir
        self.attempt = attempt
        self.admission = Admission()
        run = Run.objects.only("last_seq", "spool_offset").get(pk=run_id)
        self.last_seq = run.last_seq
        self.offset = run.spool_offset  # in the file that holds the next event
        self._files: list[tuple[int, Path]] = []  # full files, as last listed
        self._path: Path | None = None  # the file that the offset belongs to
        self._done = 0  # full files up to this seq are read to their end
        self._unstored: SpoolBatch | None = None
        self.has_more = True  # False: the last call of ship() read nothing new

    def _file(self) -> tuple[Path, bool]:
        """The file that holds the next event, and whether it is a full one; sets the offset to match."""
        files = rotated(self.run_dir)
        last_stored = max(self.last_seq, self._done)
        full = next((path for last, path in files if last > last_stored), None)
        path = full or self.run_dir / SPOOL_NAME
        if (files, path) != (self._files, self._path):
            self._files, self._path = files, path
            self.offset = self.offset if self._follows(path) else 0
        return path, full is not None

    def _follows(self, path: Path) -> bool:
        """True if the offset fits this file: it begins with stored events, and the next line is the next event."""
        if self.offset == 0:
            return True
        try:
            if path.stat().st_size < self.offset:
                return False
            with open(path, "rb") as spool:
                first = spool.readline(MAX_LINE_BYTES)
                spool.seek(self.offset)
                line = spool.readline(MAX_LINE_BYTES)
            if decode(first)["seq"] > self.last_seq:
                return False  # a new file that happens to be as long as the part of the old one that was read
            return not line.endswith(b"\n") or decode(line)["seq"] == self.last_seq + 1
        except (FileNotFoundError, DamagedLine, KeyError, ValueError):
            return False

    def ship(self) -> SpoolBatch:
        """Store the next batch of events. Errors: LeaseLost, and the database's, after which to try again."""
        # A batch that could not be stored is kept: if read again, its steps would seem to go back (Admission).
        batch = self._unstored = self._unstored or self._read()
        self.has_more = bool(batch.lines) or batch.is_at_end
        if batch.lines:
            self._write(batch)
        self._unstored = None
        if batch.lines:
            self.offset = batch.offset
            if batch.records:
                self.last_seq = batch.records[-1]["seq"]
                publish_update(self.run_id)
        elif batch.is_at_end:  # its last lines are damaged
            self._done = next(last for last, path in self._files if path == self._path)
        for last, path in self._files[:-1]:  # the newest full file stays: SpoolWriter reads the last number from it
            if last <= max(self.last_seq, self._done):
                path.unlink(missing_ok=True)
        return batch

    def _read(self) -> SpoolBatch:
        path, is_full_file = self._file()
        batch = SpoolBatch(offset=self.offset)
        last = self.last_seq
        try:
            spool = open(path, "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:  # not begun, or just renamed to a full file
            return batch
        with spool:
            if not is_full_file and rotated(self.run_dir) != self._files:
                return batch  # renamed since it was chosen: this is its successor, and its own rest is unread
            spool.seek(self.offset)
            while not batch.is_full:
                line = spool.readline(MAX_LINE_BYTES)
                size = len(line)
                if size == MAX_LINE_BYTES and not line.endswith(b"\n"):
                    line, size = self._skip_long_line(spool, line)
                if not line.endswith(b"\n"):  # the end, or a line that is still being written
                    batch.is_at_end = is_full_file
                    break
                batch.lines += 1
                batch.offset += size
                batch.size += size
                record = self._decode(line)
                if record is not None and record["seq"] > last:
                    if record["seq"] > last + 1:
                        batch.records.append(self._missing(last + 1, record))
                    last = record["seq"]
                    batch.records.append(record)
        return batch

    def _skip_long_line(self, spool: BinaryIO, start: bytes) -> tuple[bytes, int]:
        """Read to the end of a line that is too long; returns the line of a warning in its place, and its size."""
        size = len(start)
        head = _HEAD.match(start)
        while True:
            part = spool.readline(MAX_LINE_BYTES)
            size += len(part)
            if part.endswith(b"\n"):
                break
            if not part:
                return b"", 0  # still being written
        seq, attempt, when = (head[1], head[2], head[3]) if head else (b"0", b"0", b"0")
        text = f"An event of {size:,} bytes was refused; at most {MAX_LINE_BYTES:,} are allowed"
        return encode(int(seq), int(attempt), float(when), Log(level="warning", message=text)), size

    def _missing(self, first: int, record: Record) -> Record:
        """A warning in place of the events before `record` that the spool no longer holds, the first being `first`."""
        last = record["seq"] - 1
        numbers = f"Event {first:,} is" if first == last else f"Events {first:,} to {last:,} are"
        message = f"{numbers} missing: damaged or cut off in the run directory"
        log.warning("run %s: %s", self.run_id, message)
        body = {"seq": first, "type": "log", "level": "warning", "message": message, "incident": "damaged file"}
        return body | {key: record[key] for key in ("attempt", "time")}

    def _decode(self, line: bytes) -> Record | None:
        try:
            record = _parse(line)
        except (DamagedLine, ValueError) as error:
            log.warning("run %s: a damaged line of the spool was skipped: %s", self.run_id, error)
            return None
        seq, attempt = record.get("seq"), record.get("attempt")
        is_event = isinstance(seq, int) and 0 < seq < MAX_SEQ and isinstance(attempt, int)
        if not is_event or not isinstance(record.get("type"), str):
            log.warning("run %s: a line of the spool that is not an event was skipped: %.80r", self.run_id, line)
            return None
        if record["seq"] <= self.last_seq:
            return record  # already stored
        try:
            self.admission.check(record, record.get(PAYLOAD_TEXT))
        except EventRefused as refusal:
            return refusal_record(self.run_id, record, str(refusal))
        return record

    def _write(self, batch: SpoolBatch) -> None:
        columns: dict[str, Any] = {"spool_offset": batch.offset}
        if batch.records:
            columns |= {"last_seq": batch.records[-1]["seq"], **_progress(batch.records)}
        with transaction.atomic():
            # The fence first: it also locks the row against other writers for the rest of the transaction.
            if not self.fence(self.run_id, self.attempt).update(**columns):
                raise LeaseLost(self.attempt)
            insert(self.run_id, batch.records)
            if any(record["type"] == "evaluation" for record in batch.records):
                Run.objects.filter(pk=self.run_id).update(score=score_of(Run.objects.get(pk=self.run_id)))


def _parse(line: bytes) -> Record:
    """The record of a spool line. The numbers of a metrics event, most of its text, are not parsed."""
    text = verified(line)
    # The databases refuse NUL and half surrogate pairs, which a model may write.
    if b"\\u0000" in text or b"\\ud" in text:
        return clean_texts(json.loads(text))
    # Within a string this mark would have a backslash before each quote.
    head, mark, numbers = text.partition(b',"values":')
    if not mark or b'"type":"metrics"' not in head:
        return json.loads(text)
    return {**json.loads(head + b"}"), PAYLOAD_TEXT: '{"values":' + numbers.decode()}


def clean_texts(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {clean_texts(key): clean_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_texts(item) for item in value]
    return value


def _progress(records: Sequence[Record]) -> dict[str, Any]:
    """Columns of the run, from the last valid `progress` and `started` records."""
    columns: dict[str, Any] = {}
    for record in records:
        if record["type"] in ("progress", "started"):
            with contextlib.suppress(ValueError, TypeError, OverflowError):  # insert() reports what it refuses
                values: dict[str, Any] = {name: integer(record.get(name)) for name in ("step", "total_steps")}
                if record["type"] == "progress":
                    progress = {k: v for k, v in record.items() if k not in ("seq", "attempt", "time", "type")}
                    json.dumps(progress, allow_nan=False)  # 1e400 is read as infinity, which no JSON column takes
                    values["progress"] = progress
                columns |= values
    return columns
