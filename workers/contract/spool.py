"""Part of the contract: the file of a run's events, written by its trainer and read by whoever stores them.

Lines are appended to `events.jsonl` in the form of events.py. A full file becomes `events.<its last seq>.jsonl`, and
whoever stores the events removes it after that. No torch, no Django.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workers.contract.events import Body, DamagedLine, LeftOut, Log, decode, encode
from workers.contract.spool_quota import DEFAULT_QUOTA_BYTES, Gate, clean_line

SPOOL_NAME = "events.jsonl"
SEGMENT_BYTES = 16 * 2**20
# Of events that a full disk keeps out of the spool: more than this is no passing trouble.
MAX_HELD_BYTES = 64 * 2**20
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def rotated(run_dir: Path) -> list[tuple[int, Path]]:
    """(last seq, path) of each full spool file that is still there, oldest first."""
    paths = []
    for path in run_dir.glob("events.*.jsonl"):
        number = path.name.split(".")[1]
        if number.isascii() and number.isdigit():
            paths.append((int(number), path))
    return sorted(paths)


def spool_bytes(run_dir: Path) -> int:
    """Size of all spool files of a run."""
    total = 0
    for path in [run_dir / SPOOL_NAME, *(path for _, path in rotated(run_dir))]:
        with contextlib.suppress(FileNotFoundError):  # stored and removed meanwhile
            total += path.stat().st_size
    return total


class SpoolWriter:
    """Appends events to a run's spool; `seq` goes on where the last sound line ended.

    `damage`: what was wrong with the line where the spool was cut, or empty; the lines from there on are kept in
    `events.jsonl.damaged`. One writer at a time: the caller holds the run directory's lock. Threads may share it.
    """

    def __init__(self, run_dir: Path, attempt: int, quota_bytes: int = DEFAULT_QUOTA_BYTES) -> None:
        self.attempt = attempt
        self.run_dir = run_dir
        self.damage = ""
        self._lock = threading.RLock()
        self._gate = Gate(quota_bytes, lambda: spool_bytes(run_dir))
        self.seq = max((last for last, _ in rotated(run_dir)), default=0)
        path = run_dir / SPOOL_NAME
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - open for the writer's life
        complete = 0
        try:
            for offset, record in read_records(path):
                complete, self.seq = offset, record["seq"]
        except DamagedLine as error:
            lost = f"the line of event {self.seq + 1} in {SPOOL_NAME} is damaged ({error})"
            self.damage = f"events lost: {lost}; what follows it is in {SPOOL_NAME}.damaged"
            with open(path, "rb") as spool, open(run_dir / f"{SPOOL_NAME}.damaged", "ab") as rest:
                spool.seek(complete)
                shutil.copyfileobj(spool, rest)
        self._file.truncate(complete)  # a line torn by a kill is dropped: it was never shipped
        self._size = complete
        self._held = b""  # what a full disk has kept out so far
        self._full_since: float | None = None

    def emit(self, *bodies: Body) -> int:
        """Append events in one write and return the last seq. Those that thinning leaves out are counted instead.

        While the disk is full they are held back and go out with the next ones. Error: OSError, also where they
        become too many.
        """
        with self._lock:
            self._rotate_when_full()
            self._hold([*filter(self._admits, map(_cleaned, bodies)), *self._notices()])
            try:
                self._write_held()
            except OSError as error:
                self._file.truncate(self._size)  # no torn line for those who read along
                if error.errno not in DISK_FULL or len(self._held) > MAX_HELD_BYTES:
                    raise
                self._full_since = self._full_since or time.monotonic()
            return self.seq

    def _admits(self, body: Body) -> bool:
        is_urgent = isinstance(body, Log) and body.level != "info"
        return self._gate.admits(str(getattr(body, "type", "")), is_urgent=is_urgent)

    def _notices(self, *, is_last: bool = False) -> list[LeftOut]:
        return [LeftOut(counts=counts, reason=why) for why, counts in self._gate.notices(is_last=is_last).items()]

    def _hold(self, bodies: Sequence[Body]) -> None:
        lines = []
        for body in bodies:
            self.seq += 1
            lines.append(encode(self.seq, self.attempt, time.time(), body))
        self._held += b"".join(lines)

    def _write_held(self) -> None:
        """Write what is held; where a full disk had kept it out, say so after it. Error: OSError, and it is kept."""
        count = self._held.count(b"\n")
        self._append_held()
        if self._full_since is not None:
            seconds = time.monotonic() - self._full_since
            text = f"the disk was full for {seconds:.0f} s: {count} events waited for the spool and none was lost"
            self._full_since = None
            self._hold([Log(level="warning", incident="disk", message=text)])
            self._append_held()

    def _append_held(self) -> None:
        view = memoryview(self._held)
        while view:
            view = view[self._file.write(view) :]
        self._size += len(self._held)
        self._held = b""

    def _rotate_when_full(self) -> None:
        """Set a full file aside. On a full disk it grows on, and this is tried again with the next event."""
        # The quota counts the file under way and the newest full one too, stored or not: they stay a small part of it.
        if self._size < min(SEGMENT_BYTES, self._gate.quota_bytes // 8) or self._held:
            return
        path, aside = self.run_dir / SPOOL_NAME, self.run_dir / f"events.{self.seq:012d}.jsonl"
        try:
            os.fsync(self._file.fileno())
            path.rename(aside)
            try:
                fresh = open(path, "ab", buffering=0)  # noqa: SIM115
            except OSError:
                aside.rename(path)
                raise
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return
        self._file.close()
        self._file, self._size = fresh, 0

    def close(self) -> None:
        """Write what is held, and all of it to the disk. Error: OSError, where the disk is still full."""
        with self._lock:
            self._hold(self._notices(is_last=True))
            self._write_held()
            os.fsync(self._file.fileno())
            self._file.close()


def _cleaned(body: Body) -> Body:
    if not isinstance(body, Log):
        return body
    message = clean_line(body.message)
    return body if message == body.message else body.model_copy(update={"message": message})


def read_records(path: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (offset after the line, record) for each complete line from `offset`; stops at a torn tail.

    Errors: FileNotFoundError, DamagedLine for a complete line with a wrong checksum.
    """
    with open(path, "rb") as spool:
        spool.seek(offset)
        for line in spool:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield offset, decode(line)


def read_spool(run_dir: Path) -> Iterator[dict[str, Any]]:
    """All records of a run that its spool still holds, full files first. Errors: as read_records."""
    for path in [*(path for _, path in rotated(run_dir)), run_dir / SPOOL_NAME]:
        for _, record in read_records(path):
            yield record
