"""Reads a run's spool in batches: full files first, each line checked, what cannot be stored replaced by a warning.

No database: the shipper stores what is read here.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from pydantic_core import from_json

from hacrl_web.runs.telemetry.admission import Admission, EventRefused
from hacrl_web.runs.telemetry.tables import PAYLOAD_TEXT, Record, clean_texts, refusal_record
from workers.contract.events import DamagedLine, Log, decode, encode, verified
from workers.contract.spool import SPOOL_NAME, rotated

MAX_LINES = 2000
MAX_BYTES = 4 * 2**20
MAX_LINE_BYTES = 16 * 2**20
MAX_SEQ = 2**62
MAX_UNPARSED = 4000  # characters of numbers that are not parsed here
_HEAD = re.compile(rb'\{"seq": ?(\d{1,18}), ?"attempt": ?(\d{1,9}), ?"time": ?(\d{1,12}(?:\.\d+)?),')
log = logging.getLogger(__name__)


@dataclass
class SpoolBatch:
    """Records read from the spool and the offset after them."""

    records: list[Record] = field(default_factory=list)
    offset: int = 0
    lines: int = 0
    size: int = 0  # bytes
    full_file: tuple[int, Path] | None = None  # the one that ends here: its last seq, and its path

    @property
    def is_full(self) -> bool:
        return self.lines >= MAX_LINES or self.size >= MAX_BYTES


class SpoolReader:
    """Reads one run's spool from the event after `last_seq`, which begins at byte `offset` of its file.

    What it has read is behind it, stored or not.
    """

    def __init__(self, run_id: UUID, run_dir: Path, last_seq: int, offset: int) -> None:
        self.run_id = run_id
        self.run_dir = run_dir
        self.last_seq = last_seq
        self.offset = offset  # in the file that holds the next event
        self.admission = Admission()
        self._files: list[tuple[int, Path]] = []  # full files, as last listed
        self._path: Path | None = None  # the file that the offset belongs to
        self._done = 0  # full files up to this seq are read to their end

    def _file(self) -> tuple[Path, bool]:
        """The file that holds the next event, and whether it is a full one; sets the offset to match."""
        files = rotated(self.run_dir)
        last_read = max(self.last_seq, self._done)
        full = next((path for last, path in files if last > last_read), None)
        path = full or self.run_dir / SPOOL_NAME
        if (files, path) != (self._files, self._path):
            self._files, self._path = files, path
            self.offset = self.offset if self._follows(path) else 0
        return path, full is not None

    def _follows(self, path: Path) -> bool:
        """True if the offset fits this file: it begins with read events, and the next line is the next event."""
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

    def read(self) -> SpoolBatch:
        """The next batch; one without lines if there is nothing new. Error: OSError."""
        path, is_full_file = self._file()
        batch = SpoolBatch(offset=self.offset)
        try:
            spool = open(path, "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:  # not begun, or just renamed to a full file
            return batch
        with spool:
            if not is_full_file and rotated(self.run_dir) != self._files:
                return batch  # renamed since it was chosen: this is its successor, and its own rest is unread
            spool.seek(self.offset)
            with self.admission.undone_by_error():
                last = self._fill(batch, spool)
            if is_full_file and not batch.is_full:
                self._done, _ = batch.full_file = next(file for file in self._files if file[1] == path)
        self.offset, self.last_seq = batch.offset, last
        return batch

    def remove_files(self, last_stored: int) -> None:
        """Remove full files whose events are all stored: those up to seq `last_stored` are.

        The newest stays: SpoolWriter reads the last number from it.
        """
        for last, path in self._files[:-1]:
            if last <= last_stored:
                path.unlink(missing_ok=True)

    def _fill(self, batch: SpoolBatch, spool: BinaryIO) -> int:
        """Read lines into the batch until it is full or they end. Returns the last seq that is read."""
        last = self.last_seq
        while not batch.is_full:
            line = spool.readline(MAX_LINE_BYTES)
            size = len(line)
            if size == MAX_LINE_BYTES and not line.endswith(b"\n"):
                line, size = self._skip_long_line(spool, line)
            if not line.endswith(b"\n"):  # the end, or a line that is still being written
                break
            batch.lines += 1
            batch.offset += size
            batch.size += size
            record = self._decode(line)
            if record is not None and (seq := record["seq"]) > last:
                if seq > last + 1:
                    batch.records.append(self._missing(last + 1, record))
                last = seq
                batch.records.append(record)
        return last

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
        return body | {key: record[key] for key in ("attempt", "time") if key in record}

    def _decode(self, line: bytes) -> Record | None:
        try:
            record = _parse(line)
        except (DamagedLine, ValueError) as error:
            log.warning("run %s: a damaged line of the spool was skipped: %s", self.run_id, error)
            return None
        seq = record.get("seq")
        is_numbered = type(seq) is int and 0 < seq < MAX_SEQ and type(record.get("attempt")) is int
        if not is_numbered or not isinstance(record.get("type"), str):
            log.warning("run %s: a line of the spool that is not an event was skipped: %.80r", self.run_id, line)
            return None
        if record["seq"] <= self.last_seq:
            return record  # already read
        try:
            self.admission.check(record, record.get(PAYLOAD_TEXT))
        except EventRefused as refusal:
            return refusal_record(self.run_id, record, str(refusal))
        return record


def _parse(line: bytes) -> Record:
    """The record of a spool line; the numbers of metrics, most of their text, are not parsed. Error: ValueError."""
    text = verified(line)
    if b"\0" in text:  # where SQLite's check of JSON would end
        raise DamagedLine("it has a NUL")
    # The databases refuse NUL and half surrogate pairs, which a model may write.
    if b"\\" in text and any(escape in text for escape in (b"\\u0000", b"\\ud", b"\\uD")):
        try:
            return clean_texts(json.loads(text))
        except RecursionError:
            raise DamagedLine("it is nested too deeply") from None
    # Within a string this mark would have a backslash before each quote.
    head, mark, numbers = text.partition(b',"values":')
    if not mark or b'"type":"metrics"' not in head:
        return from_json(text)
    record: Record = from_json(head + b"}")
    if record.get("type") != "metrics":
        return from_json(text)
    payload = '{"values":' + numbers.decode()
    if len(payload) > MAX_UNPARSED:  # with thousands of digits it is refused here, as readers would refuse it
        from_json(payload)
    record[PAYLOAD_TEXT] = payload
    return record
