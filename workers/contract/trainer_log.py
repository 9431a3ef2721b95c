"""trainer.log, the trainer's stdout and stderr within bounds, and how to read it.

The trainer appends to the file itself, because a pipe fills when its reader is frozen and breaks when the reader dies.
The supervisor watches the blocks that the file uses. Above the limit, the middle of the file becomes a hole
(fallocate(2)): its blocks are freed and nothing else moves, so no output is lost meanwhile. On file systems without
holes the newest part is moved down over the middle; output of that instant may be lost, and a mark says so.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from workers.contract.spool import LINE_CHARACTERS, clean_line

LOG_NAME = "trainer.log"
FIRST_BYTES = 2**20
KEPT_BYTES = 4 * 2**20
LIMIT_BYTES = 8 * 2**20  # on the disk
CHECK_S = 0.2
BLOCK = 4096  # a hole of whole blocks leaves no zeros around it
READ_BYTES = 20 * LINE_CHARACTERS  # of one line; the rest is only counted
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01  # linux/falloc.h
_MARK = "[cut: {count:,} bytes of the trainer's output were not kept; at most {limit} MiB of it are{more}]"
_INSTANT = "; what was written in the instant of the cut may be missing too"
_COUNT = re.compile(rb"^\[cut: ([\d,]+) bytes of the trainer's output.*instant of the cut.*\]\n", re.MULTILINE)
log = logging.getLogger(__name__)


def limit_output(run_dir: Path) -> bool:
    """Cut the middle out of trainer.log if it is too large. True if it was cut. Error: OSError."""
    path = run_dir / LOG_NAME
    try:
        if allocated_bytes(path.stat()) <= LIMIT_BYTES:
            return False
        live = open(path, "r+b", buffering=0)  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return False
    with live:
        try:
            fcntl.flock(live, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # a supervisor that was frozen, and its successor
            return False
        status = os.fstat(live.fileno())
        begin, end = -(-FIRST_BYTES // BLOCK) * BLOCK, (status.st_size - KEPT_BYTES) // BLOCK * BLOCK
        if allocated_bytes(status) <= LIMIT_BYTES or end <= begin:
            return False
        if not _punch(live.fileno(), begin, end):
            _move_down(live.fileno(), status.st_size - KEPT_BYTES)
    return True


def allocated_bytes(status: os.stat_result) -> int:
    """Bytes that a file uses on the disk; st_blocks counts units of 512 bytes on every file system."""
    return status.st_blocks * 512


def _punch(live: int, begin: int, end: int) -> bool:
    """Free the blocks from `begin` to `end`. False if the system or the file system supports no holes."""
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)  # off_t is a long
    if fallocate(live, _PUNCH_HOLE | _KEEP_SIZE, begin, end - begin) == 0:
        return _end_of_hole(live, begin) >= end  # readers must be able to find the hole
    if (number := ctypes.get_errno()) in (errno.EOPNOTSUPP, errno.ENOSYS):
        return False
    raise OSError(number, os.strerror(number), LOG_NAME)


def _move_down(live: int, place: int) -> None:
    """Move the end of the file, from `place` on, behind the first part and a mark."""
    first, missing = os.pread(live, FIRST_BYTES + BLOCK, 0), 0
    if mark := _COUNT.search(first):  # of the previous cut
        target, place_of_rest = mark.start(), mark.end()
        missing = int(mark[1].replace(b",", b""))
    else:
        target = place_of_rest = first.rfind(b"\n", 0, FIRST_BYTES) + 1 or FIRST_BYTES
    place += max(0, os.pread(live, READ_BYTES, place - 1).find(b"\n"))  # to the beginning of a line, if one is near
    count = missing + place - place_of_rest
    part = f"{_MARK.format(count=count, limit=limit_mib(), more=_INSTANT)}\n".encode()
    while part:
        target += os.pwrite(live, part, target)
        part = os.pread(live, 2**20, place)
        place += len(part)
    os.ftruncate(live, target)


def limit_mib() -> int:
    """Most of a run's output that is kept; between two checks the file may be larger."""
    return LIMIT_BYTES // 2**20


class OutputLimiter:
    """A thread that limits one run's output until it is stopped; the supervisor itself may wait for its database."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trainer-output", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_stopped.wait(CHECK_S)  # what was written just before the end is limited too
            try:
                limit_output(self._run_dir)
            except OSError as error:  # tried again by the next check
                log.warning("%s could not be cut: %s", self._run_dir / LOG_NAME, error)
                self._is_stopped.wait(10.0)

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()


def read_output(run_dir: Path) -> Iterator[str]:
    """The lines of all attempts, cleaned, from first to last; a mark replaces missing output, also of a cut meanwhile.

    Error: FileNotFoundError if there is no output, as on another host.
    """
    # Opened twice, because a search for the end of a hole moves the file's position.
    with open(run_dir / LOG_NAME, "rb") as live, open(run_dir / LOG_NAME, "rb", buffering=0) as holes:
        yield from _lines(live, holes.fileno())


def _lines(file: BinaryIO, holes: int) -> Iterator[str]:
    while part := file.readline(READ_BYTES):
        missing = _pass_hole(file, holes, part)
        if not missing:
            text = part.decode("utf-8", "replace").rstrip("\n")
            whole = len(text)
            while not part.endswith(b"\n") and (part := file.readline(READ_BYTES)):
                if missing := _pass_hole(file, holes, part):
                    break
                whole += len(part.rstrip(b"\n").decode("utf-8", "ignore"))
            yield clean_line(text, whole)
        if missing:
            yield _MARK.format(count=missing, limit=limit_mib(), more="")


def _pass_hole(file: BinaryIO, holes: int, part: bytes) -> int:
    """Go behind a hole in `part`, which was read last, to the first whole line.

    Returns the bytes from the beginning of `part` to there; 0 without a hole, even if the trainer wrote zeros.
    """
    if b"\0" not in part:
        return 0
    begin = file.tell() - len(part)
    for place in (begin, *range(begin // BLOCK * BLOCK + BLOCK, begin + len(part), BLOCK)):
        if part[place - begin] == 0 and (end := _end_of_hole(holes, place)) > place:
            file.seek(end)
            if not file.readline(READ_BYTES).endswith(b"\n"):  # no line begins nearby
                file.seek(end)
            return file.tell() - begin
    return 0


def _end_of_hole(file: int, place: int) -> int:
    try:
        return os.lseek(file, place, os.SEEK_DATA)
    except OSError:  # a hole up to the end of the file, or no support
        return place


def last_output(run_dir: Path, count: int, size: int = 8192) -> str:
    """The last lines that are not blank, cleaned; empty if there is no output."""
    try:
        with open(run_dir / LOG_NAME, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    lines = [clean_line(line)[:500] for line in text.split("\n")]
    return "\n".join([line for line in lines if line.strip()][-count:])
