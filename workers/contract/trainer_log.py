"""Part of the contract: what a trainer writes to stdout and stderr, kept within bounds, and the one way to read it.

The trainer appends to `trainer.log` itself: no pipe that fills while its reader is frozen or that breaks when it dies.
Whoever started it looks at what the file takes on the disk. If that is too much, its middle, between the first part and
the newest, becomes a hole (fallocate(2)). The size grows on, the blocks are free, and nothing that is kept moves, so
nothing that the trainer writes meanwhile is lost. Where there are no holes, the newest part is moved down over the
middle; what is written in that instant may be lost, and the mark at that place says so. No torch, no Django.
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

from workers.contract.spool_quota import LINE_CHARACTERS, clean_line

LOG_NAME = "trainer.log"
FIRST_BYTES = 2**20
KEPT_BYTES = 4 * 2**20
LIMIT_BYTES = 8 * 2**20  # on the disk
LOOK_S = 0.2
BLOCK = 4096  # a hole of whole blocks frees them all and leaves no zeros beside it
READ_BYTES = 20 * LINE_CHARACTERS  # of one line; the rest of it is only counted
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01  # linux/falloc.h
_MARK = "[cut: {count:,} bytes of the trainer's output were not kept; at most {limit} MiB of it are{more}]"
_INSTANT = "; what was written in the instant of the cut may be missing too"
_COUNT = re.compile(rb"^\[cut: ([\d,]+) bytes of the trainer's output.*instant of the cut.*\]\n", re.MULTILINE)
log = logging.getLogger(__name__)


def limit_output(run_dir: Path) -> bool:
    """Cut the middle out of trainer.log where it takes too much. True where it was cut. Error: OSError."""
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
        except BlockingIOError:  # a supervisor that was frozen and its successor look at the same time
            return False
        status = os.fstat(live.fileno())
        begin, end = -(-FIRST_BYTES // BLOCK) * BLOCK, (status.st_size - KEPT_BYTES) // BLOCK * BLOCK
        if allocated_bytes(status) <= LIMIT_BYTES or end <= begin:
            return False
        if not _punch(live.fileno(), begin, end):
            _move_down(live.fileno(), status.st_size - KEPT_BYTES)
    return True


def allocated_bytes(status: os.stat_result) -> int:
    """What a file takes on the disk; st_blocks counts 512 bytes each, whatever the file system's blocks are."""
    return status.st_blocks * 512


def _punch(live: int, begin: int, end: int) -> bool:
    """Free the blocks from `begin` to `end`. False where the system or the file system has no holes."""
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)  # off_t is a long
    if fallocate(live, _PUNCH_HOLE | _KEEP_SIZE, begin, end - begin) == 0:
        return _end_of_hole(live, begin) >= end  # where holes cannot be found, they could not be told
    if (number := ctypes.get_errno()) in (errno.EOPNOTSUPP, errno.ENOSYS):
        return False
    raise OSError(number, os.strerror(number), LOG_NAME)


def _move_down(live: int, place: int) -> None:
    """Write a mark and what stands from `place` on behind the first part, in the file itself, and cut its end off."""
    first, missing = os.pread(live, FIRST_BYTES + BLOCK, 0), 0
    if mark := _COUNT.search(first):  # of the cut before this one
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
    """What is kept of a run's output at most, but for what comes between two looks."""
    return LIMIT_BYTES // 2**20


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
            except OSError as error:  # the next look tries again
                log.warning("%s could not be cut: %s", self._run_dir / LOG_NAME, error)
                self._is_stopped.wait(10.0)

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()


def read_output(run_dir: Path) -> Iterator[str]:
    """The lines of all attempts as they are shown, first to last; a mark stands where something is missing.

    A cut that overtakes this reading is one more mark. Error: FileNotFoundError where there is no output, as on
    another host.
    """
    # Two descriptions: looking for the hole's end moves the place of the one that it is asked of.
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
    """If a hole is in `part`, which was read last, go to the first whole line behind it.

    Returns the bytes from the beginning of `part` to there; 0 where there is no hole, though the trainer wrote zeros.
    """
    if b"\0" not in part:
        return 0
    begin = file.tell() - len(part)
    for place in (begin, *range(begin // BLOCK * BLOCK + BLOCK, begin + len(part), BLOCK)):
        if part[place - begin] == 0 and (end := _end_of_hole(holes, place)) > place:
            file.seek(end)
            if not file.readline(READ_BYTES).endswith(b"\n"):  # no line begins near
                file.seek(end)
            return file.tell() - begin
    return 0


def _end_of_hole(file: int, place: int) -> int:
    try:
        return os.lseek(file, place, os.SEEK_DATA)
    except OSError:  # nothing but a hole up to the end, or no such question here
        return place


def last_output(run_dir: Path, count: int, size: int = 8192) -> str:
    """The last lines that hold anything, readable whatever is in them; empty where there is no output."""
    try:
        with open(run_dir / LOG_NAME, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    lines = [clean_line(line)[:500] for line in text.split("\n")]
    return "\n".join([line for line in lines if line.strip()][-count:])
