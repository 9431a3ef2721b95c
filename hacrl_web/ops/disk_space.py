"""Full disks by name: the banner of every page, the refusals of what writes, and what an error of a full disk says."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.db import Error as DatabaseProblem

from hacrl_web.web.errors import FieldErrors
from workers.contract.number_format import format_size

FULL_BYTES, FULL_SHARE = 512 * 2**20, 0.02  # nothing new is stored below the smaller of both
LOW_BYTES, LOW_SHARE = 10 * 2**30, 0.05  # pages say so
LOOK_EVERY_S = 5.0
LOOK_S = 1.0  # longest look: a network disk that hangs holds no page up
SQLITE = "django.db.backends.sqlite3"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
WORDS = ("disk is full", "no space left on device", "disk quota exceeded")  # of SQLite and PostgreSQL
OF_THE_DATABASE_SERVER = "The disk of the database server is full: its operator has to make room."


@dataclass(frozen=True)
class Disk:
    """A file system with folders of ours, named by one of them."""

    folder: Path
    free_bytes: int
    total_bytes: int

    @property
    def is_full(self) -> bool:
        return self.free_bytes < min(FULL_BYTES, FULL_SHARE * self.total_bytes)

    @property
    def is_low(self) -> bool:
        return self.free_bytes < min(LOW_BYTES, LOW_SHARE * self.total_bytes)

    @property
    def sentence(self) -> str:
        return self.full_sentence if self.is_full else f"The disk of {self.folder} is nearly full: {self._amounts}."

    @property
    def full_sentence(self) -> str:
        return (
            f"The disk of {self.folder} is full: {self._amounts}. No run starts and nothing new is stored until there "
            "is room: delete checkpoints or archived runs, or enlarge it."
        )

    @property
    def _amounts(self) -> str:
        return f"{format_size(self.free_bytes)} of {format_size(self.total_bytes)} are free"


@dataclass
class _Looks:
    """The last look, which requests share."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    at: float = float("-inf")
    thread: threading.Thread | None = None
    disks: list[Disk] = field(default_factory=list)


_looks = _Looks()


def low_disks() -> list[Disk]:
    """The disks that were full or nearly full within the last LOOK_EVERY_S."""
    if time.monotonic() - _looks.at > LOOK_EVERY_S and _looks.lock.acquire(blocking=False):
        try:
            if _looks.thread is None or not _looks.thread.is_alive():
                _looks.thread = threading.Thread(target=_look, daemon=True)
                _looks.thread.start()
                _looks.thread.join(LOOK_S)
        finally:
            _looks.at = time.monotonic()
            _looks.lock.release()
    return [disk for disk in _looks.disks if disk.is_low]


def _look() -> None:
    _looks.disks = _disks(_folders())


def _folders() -> list[Path]:
    database = settings.DATABASES["default"]
    is_file = database["ENGINE"] == SQLITE
    places = [settings.DATA_DIR, settings.RUNS_DIR, settings.BENCHMARKS_DIR, settings.MODELS_DIR]
    return [*places, *([Path(database["NAME"]).parent] if is_file else []), Path(tempfile.gettempdir())]


def _disks(folders: Iterable[Path]) -> list[Disk]:
    by_device: dict[int, Disk] = {}
    for folder in folders:
        try:
            device, usage = os.stat(folder).st_dev, os.statvfs(folder)
        except OSError:  # not made yet
            continue
        free = usage.f_bavail * usage.f_frsize
        if usage.f_files and not usage.f_favail:  # no further file, however small
            free = 0
        by_device.setdefault(device, Disk(folder, free, usage.f_blocks * usage.f_frsize))
    return list(by_device.values())


def full_disk() -> str:
    """The sentence about a full disk; empty if there is none."""
    return next((disk.sentence for disk in low_disks() if disk.is_full), "")


def check_room(field: str | None = None) -> None:
    """Check for room before something is stored. Error: FieldErrors (507) if a disk is full."""
    if sentence := full_disk():
        raise FieldErrors.single("disk_full", sentence, field, status=507)


def disk_error(error: BaseException | None) -> FieldErrors | None:
    """What an error says that a full disk has caused, here or at its cause; None for others."""
    while error is not None:
        is_of_system = isinstance(error, OSError) and error.errno in DISK_FULL
        if is_of_system or (isinstance(error, DatabaseProblem) and any(words in str(error).lower() for words in WORDS)):
            return FieldErrors.single("disk_full", _cause(error), status=507)
        error = error.__cause__ or error.__context__
    return None


def _cause(error: BaseException) -> str:
    """A sentence on the full disk: the file's, else ours that are full, else the one with the least room."""
    path = error.filename if isinstance(error, OSError) else None
    disks = _disks([Path(os.fsdecode(path)).parent] if isinstance(path, str | bytes) else [])
    ours = _disks(_folders())
    disks += [disk for disk in ours if disk.is_full]
    if not disks and not isinstance(error, OSError) and settings.DATABASES["default"]["ENGINE"] != SQLITE:
        return OF_THE_DATABASE_SERVER
    disks += sorted(ours, key=lambda disk: disk.free_bytes)
    return disks[0].full_sentence if disks else "A disk is full."
