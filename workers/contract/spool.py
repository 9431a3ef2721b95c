"""The spool, a file of events that a run's trainer writes and the shipper reads.

Lines as in events.py are appended to `events.jsonl`. A full file becomes `events.<its last seq>.jsonl`, which the
shipper removes after storing it. Log lines are cleaned and limited, and a nearly full spool takes only the most
important types; events left out get no `seq` and are counted in `left_out` events.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from workers.contract.events import Body, DamagedLine, LeftOut, Log, decode, encode

SPOOL_NAME = "events.jsonl"
SEGMENT_BYTES = 16 * 2**20
MAX_HELD_BYTES = 64 * 2**20  # most bytes of events that wait while the disk is full
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
LINE_CHARACTERS = 4000
LINES_PER_S = 200.0
LINES_AT_ONCE = 2000.0
NOTICE_S = 5.0
# Share of the quota from which events of a type are left out; other types always enter.
LEVELS = {"log": 0.5, "rollout": 0.5, "contribution": 0.5, "answers": 0.5, "metrics": 0.9, "progress": 0.9}
DEFAULT_QUOTA_BYTES = 2 * 2**30
TOO_MANY_LINES = f"more than {LINES_PER_S:.0f} log lines a second"

# CSI sequences (colours, cursor), OSC strings (titles, links) and two-character escapes of ECMA-48.
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|\x9b[0-?]*[ -/]*[@-~]")
# Control characters, and those that reverse the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean_line(text: str, whole: int = 0) -> str:
    """A log line without escape sequences and control characters; a line that is too long is cut and marked.

    whole: length of the line if `text` is only its beginning.
    """
    if len(text) <= LINE_CHARACTERS and whole <= 20 * LINE_CHARACTERS and text.isprintable():
        return text
    whole = max(whole, len(text))
    text = text[: 20 * LINE_CHARACTERS]  # cleaning a whole line of 1 MB takes too long
    text = _ANSI.sub("", text)
    # A progress bar overwrites its line: keep what a terminal shows in the end.
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    text = _CONTROL.sub("", text)
    if len(text) <= LINE_CHARACTERS and whole <= 20 * LINE_CHARACTERS:
        return text
    return f"{text[:LINE_CHARACTERS]} … [cut: the line had {whole:,} characters]"


class EventQuota:
    """Decides which events enter the spool, and counts the others. measure: returns the spool's size in bytes."""

    def __init__(self, quota_bytes: int, measure: Callable[[], int], now: Callable[[], float] = time.monotonic) -> None:
        self.quota_bytes = quota_bytes
        self._measure, self._now = measure, now
        self._share, self._measure_at = 0.0, 0.0
        self._tokens, self._tokens_at = LINES_AT_ONCE, now()
        self._left_out: dict[str, Counter[str]] = {}
        self._notice_at = 0.0

    def admits(self, kind: str, *, is_urgent: bool = False) -> bool:
        """False if an event of this type is left out. is_urgent: a warning, which enters a full spool too."""
        now = self._now()
        if now >= self._measure_at:
            self._share, self._measure_at = self._measure() / self.quota_bytes, now + 1.0
        if self._share >= LEVELS.get(kind, float("inf")) and not is_urgent:
            return self._leave_out(kind, f"the spool fills more than {LEVELS[kind]:.0%} of its quota")
        if kind == "log":
            self._tokens = min(LINES_AT_ONCE, self._tokens + (now - self._tokens_at) * LINES_PER_S)
            self._tokens_at = now
            if self._tokens < 1:
                return self._leave_out(kind, TOO_MANY_LINES)
            self._tokens -= 1
        return True

    def _leave_out(self, kind: str, reason: str) -> bool:
        self._left_out.setdefault(reason, Counter())[kind] += 1
        return False

    def notices(self, *, is_last: bool = False) -> dict[str, dict[str, int]]:
        """Reason -> type -> number of events left out since the last notice; empty if that was just now."""
        now = self._now()
        if not self._left_out or (now < self._notice_at and not is_last):
            return {}
        self._notice_at = now + NOTICE_S
        counts_by_reason = {reason: dict(counts) for reason, counts in self._left_out.items()}
        self._left_out = {}
        return counts_by_reason


def rotated(run_dir: Path) -> list[tuple[int, Path]]:
    """(last seq, path) of each full spool file that still exists, oldest first."""
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
    """Appends events to a run's spool; `seq` continues from the last intact line.

    `damage`: a message if the spool was cut at a damaged line, else empty; `events.jsonl.damaged` keeps what
    followed. One writer at a time: the caller holds the run directory's lock. Threads may share it.
    """

    def __init__(self, run_dir: Path, attempt: int, quota_bytes: int = DEFAULT_QUOTA_BYTES) -> None:
        self.attempt = attempt
        self.run_dir = run_dir
        self.damage = ""
        self._lock = threading.RLock()
        self._quota = EventQuota(quota_bytes, lambda: spool_bytes(run_dir))
        self.seq = max((last for last, _ in rotated(run_dir)), default=0)
        path = run_dir / SPOOL_NAME
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - open for the writer's life
        complete = 0
        try:
            for offset, record in read_records(path):
                complete, self.seq = offset, record["seq"]
        except DamagedLine as error:
            self.damage = (
                f"events lost: the line of event {self.seq + 1} in {SPOOL_NAME} is damaged ({error}); it and what "
                f"follows are in {SPOOL_NAME}.damaged"
            )
            with open(path, "rb") as spool, open(run_dir / f"{SPOOL_NAME}.damaged", "ab") as rest:
                spool.seek(complete)
                shutil.copyfileobj(spool, rest)
        self._file.truncate(complete)  # drops a line torn by a kill, which was never shipped
        self._size = complete
        self._held = b""  # events that wait while the disk is full
        self._full_since: float | None = None

    def emit(self, *bodies: Body) -> int:
        """Append events in one write and return the last seq. Events that the quota leaves out are only counted.

        While the disk is full, events wait and are written with the next ones. Error: OSError, also if too many
        wait.
        """
        with self._lock:
            self._rotate_when_full()
            self._hold([*filter(self._admits, map(_clean, bodies)), *self._notices()])
            try:
                self._write_held()
            except OSError as error:
                self._file.truncate(self._size)  # readers of the file must not see a torn line
                if error.errno not in DISK_FULL or len(self._held) > MAX_HELD_BYTES:
                    raise
                self._full_since = self._full_since or time.monotonic()
            return self.seq

    def _admits(self, body: Body) -> bool:
        is_urgent = isinstance(body, Log) and body.level != "info"
        return self._quota.admits(str(getattr(body, "type", "")), is_urgent=is_urgent)

    def _notices(self, *, is_last: bool = False) -> list[LeftOut]:
        return [LeftOut(counts=counts, reason=why) for why, counts in self._quota.notices(is_last=is_last).items()]

    def _hold(self, bodies: Sequence[Body]) -> None:
        lines = []
        for body in bodies:
            self.seq += 1
            lines.append(encode(self.seq, self.attempt, time.time(), body))
        self._held += b"".join(lines)

    def _write_held(self) -> None:
        """Write the waiting events, and after a full disk a log line on it. Error: OSError; the events still wait."""
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
        """Rename a full file and start a new one; on a full disk, with the next event instead."""
        # The quota counts the current file and the newest full one, stored or not: keep them a small part of it.
        if self._size < min(SEGMENT_BYTES, self._quota.quota_bytes // 8) or self._held:
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
        """Write what still waits and flush the file to disk. Error: OSError, if the disk is still full."""
        with self._lock:
            self._hold(self._notices(is_last=True))
            self._write_held()
            os.fsync(self._file.fileno())
            self._file.close()


def _clean(body: Body) -> Body:
    if not isinstance(body, Log):
        return body
    message = clean_line(body.message)
    return body if message == body.message else body.model_copy(update={"message": message})


def read_records(path: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """(Offset after the line, record) for each complete line from `offset`; stops at a torn last line.

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
    """All records that a run's spool still holds, in order. Errors: as read_records."""
    for path in [*(path for _, path in rotated(run_dir)), run_dir / SPOOL_NAME]:
        for _, record in read_records(path):
            yield record
