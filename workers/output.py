"""The contract, part four: what a trainer writes to stdout and stderr, kept within bounds, and the one way to read it.

The trainer appends to `trainer.log` itself: no pipe that fills while its reader is frozen or that breaks when it dies.
Whoever started it looks at the size. A file that is too long is cut to nothing under the trainer's hands (it was opened
for appending), after its first part, once, and its newest part were copied beside it. What the trainer writes in the
instant between the end of the copy and the cut is lost; the mark at that place says so. No torch, no Django.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from workers.thinning import LINE_CHARACTERS, clean_line

LOG_NAME = "trainer.log"
FIRST_NAME = "trainer.log.first"  # how the output began
KEPT_NAME = "trainer.log.kept"  # what stood before trainer.log; its first line is the mark of what is missing before it
FIRST_BYTES = 2**20
KEPT_BYTES = 4 * 2**20
LIMIT_BYTES = 8 * 2**20
LOOK_S = 0.2
READ_BYTES = 20 * LINE_CHARACTERS  # of one line; the rest of it is only counted
_MARK = "[cut: {count:,} bytes of the trainer's output were not kept; at most {limit} MiB of it are]\n"
_COUNT = re.compile(rb"\[cut: ([\d,]+) bytes")
_SEAM = b"[a cut was made here: what was written in the same instant may be missing]\n"
log = logging.getLogger(__name__)


def limit_output(run_dir: Path) -> bool:
    """Cut trainer.log where it is too long. True where it was cut. Error: OSError, and nothing is lost."""
    path = run_dir / LOG_NAME
    try:
        if path.stat().st_size <= LIMIT_BYTES:
            return False
        live = open(path, "r+b")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return False
    with live:
        try:
            fcntl.flock(live, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # a supervisor that was frozen and its successor look at the same time
            return False
        if os.fstat(live.fileno()).st_size <= LIMIT_BYTES:
            return False
        begins_at = _keep_first(run_dir, live.fileno())
        _keep_newest(run_dir, live.fileno(), begins_at)
    return True


def _keep_first(run_dir: Path, live: int) -> int:
    """Copy how the output began, once for a run. Returns how many bytes of trainer.log that are."""
    path = run_dir / FIRST_NAME
    if path.exists():
        return 0
    first = os.pread(live, FIRST_BYTES, 0)
    first = first[: first.rfind(b"\n") + 1] or first
    temporary = path.with_suffix(".new")
    temporary.write_bytes(first)
    temporary.replace(path)
    return len(first)


def _keep_newest(run_dir: Path, live: int, begins_at: int) -> None:
    """Copy the end of trainer.log, behind a mark of what is now missing before it, and empty trainer.log."""
    path = run_dir / KEPT_NAME
    end = os.fstat(live).st_size
    place = max(begins_at, end - KEPT_BYTES)
    if place > begins_at:  # to the beginning of a line, if one is near
        place += max(0, os.pread(live, READ_BYTES, place - 1).find(b"\n"))
    missing = _unkept(path) + place - begins_at
    temporary = path.with_suffix(".new")
    try:
        with open(temporary, "wb") as kept:
            kept.write(_MARK.format(count=missing, limit=limit_mib()).encode())
            _copy(live, kept, place, end)
            temporary.replace(path)  # whoever is killed from here on leaves lines twice, not lines lost
            _copy(live, kept, end, os.fstat(live).st_size)
            os.ftruncate(live, 0)
            kept.write(_SEAM)
    finally:
        temporary.unlink(missing_ok=True)


def _copy(source: int, target: BinaryIO, place: int, end: int) -> None:
    while place < end and (part := os.pread(source, min(2**20, end - place), place)):
        target.write(part)
        place += len(part)
    target.flush()


def limit_mib() -> int:
    """What is kept of a run's output at most, but for what comes between two looks."""
    return (FIRST_BYTES + KEPT_BYTES + LIMIT_BYTES) // 2**20


def _unkept(path: Path) -> int:
    """Bytes that the kept part says are missing before it, and its own, which go now."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as kept:
            mark = kept.readline(READ_BYTES)
    except FileNotFoundError:
        return 0
    found = _COUNT.match(mark)
    return int(found[1].replace(b",", b"")) + size - len(mark) - len(_SEAM) if found else size


class OutputLimiter:
    """Looks at one run's output until it is stopped, in a thread: a supervisor may wait long for its database."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="trainer-output", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._is_stopped.wait(LOOK_S):
            try:
                limit_output(self._run_dir)
            except OSError as error:  # a full disk: nothing was cut, and the next look tries again
                log.warning("%s could not be cut: %s", self._run_dir / LOG_NAME, error)
                self._is_stopped.wait(10.0)

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()


def read_output(run_dir: Path) -> Iterator[str]:
    """The lines of all attempts as they are shown, first to last; marks stand where something is missing.

    A cut in the middle of a reading hides the lines that it moves from this reading.
    Error: FileNotFoundError where there is no output, as on another host.
    """
    with open(run_dir / LOG_NAME, "rb") as live:
        for name in (FIRST_NAME, KEPT_NAME):
            with contextlib.suppress(FileNotFoundError), open(run_dir / name, "rb") as part:
                yield from _lines(part)
        yield from _lines(live)


def _lines(file: BinaryIO) -> Iterator[str]:
    while part := file.readline(READ_BYTES):
        text = part.decode("utf-8", "replace").rstrip("\n")
        whole = len(text)
        while not part.endswith(b"\n") and (part := file.readline(READ_BYTES)):
            whole += len(part.rstrip(b"\n").decode("utf-8", "ignore"))
        yield clean_line(text, whole)


def last_output(run_dir: Path, count: int, size: int = 8192) -> str:
    """The last lines that hold anything, readable whatever is in them; empty where there is no output."""
    end = b""
    for name in (LOG_NAME, KEPT_NAME):
        with contextlib.suppress(FileNotFoundError), open(run_dir / name, "rb") as file:
            place = file.seek(0, os.SEEK_END)
            file.seek(max(0, place - size + len(end)))
            end = file.read() + end
        if len(end) >= size:
            break
    text = end.replace(_SEAM, b"").decode("utf-8", "replace")
    lines = [clean_line(line)[:500] for line in text.split("\n")]
    return "\n".join([line for line in lines if line.strip()][-count:])
