"""The files of a run: what they take on the disk, the locks of those who read or add some, and what retention removed.

A reader of checkpoints holds a shared lock, so that retention removes nothing meanwhile.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors
from workers.contract.checkpoint_manifest import FOLDER_NAME
from workers.contract.trainer_log import allocated_bytes

MAX_FILES = 20_000
READING_LOCK = "reading.lock"
GGUF_FOLDER = "gguf"  # files that earlier versions made of agents
COPIES_FOLDER = "models"  # agents of another run's checkpoint, which this run evaluates
WEIGHT_FOLDERS = (FOLDER_NAME, GGUF_FOLDER, COPIES_FOLDER)


def folder_bytes(folder: str) -> int | None:
    """What the files below take, holes not counted, links not followed; None where there is no such folder here."""
    if not os.path.isdir(folder):
        return None
    total = num_files = 0
    for place, _, names in os.walk(folder):
        for name in names:
            num_files += 1
            try:
                total += allocated_bytes(os.lstat(os.path.join(place, name)))
            except OSError:  # gone meanwhile
                continue
            if num_files >= MAX_FILES:
                return total
    return total


def weight_folders(run_dir: Path) -> list[Path]:
    """The folders of weights that are there; one that is a link leads to a place that is not the run's."""
    paths = [run_dir / name for name in WEIGHT_FOLDERS]
    return [path for path in paths if path.is_dir() and not path.is_symlink()]


def files_removal(run: Run) -> str:
    """Why its checkpoints are gone, if retention has removed them; else empty."""
    if run.files_removed_at is None:
        return ""
    days, at = run.files_removed_days, run.files_removed_at
    text = f"removed after {days} day{'' if days == 1 else 's'} by the project's retention, on {at:%Y-%m-%d}"
    return f"The checkpoints of this run were {text}."


def lock_readers_out(run_dir: Path) -> int:
    """The descriptor of a lock under which nobody reads checkpoints. Errors: BlockingIOError; OSError."""
    return _lock(run_dir / READING_LOCK, fcntl.LOCK_EX)


def _lock(path: Path, kind: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def reading_files(run: Run) -> Iterator[int | None]:
    """Keeps retention from the files of a run. Yields the lock's descriptor; a process that inherits it holds the lock.

    None on a disk that cannot lock, which hinders no reader. Error: FieldErrors, if the files are removed.
    """
    lock, is_locked_out = None, False
    try:
        lock = _lock(run.run_dir / READING_LOCK, fcntl.LOCK_SH)
    except BlockingIOError:
        is_locked_out = True
    except OSError:  # no such folder either, which the reader finds
        pass
    try:
        row = Run.objects.filter(pk=run.pk).first()
        if row is None:
            raise FieldErrors.single("not_found", f"{run.name} was deleted a moment ago.", status=404)
        if sentence := files_removal(row):
            raise FieldErrors.single("not_found", sentence, status=404)
        if is_locked_out:
            message = f"The files of {run.name} are being removed: reload the page."
            raise FieldErrors.single("busy", message, status=409)
        yield lock
    finally:
        if lock is not None:
            os.close(lock)


def pieces_while_reading(run: Run, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces of a download, under the lock of `reading_files` from now to their end. Error: FieldErrors."""

    def served() -> Iterator[bytes]:
        with reading_files(run):
            yield b""
            yield from pieces

    download = served()
    next(download)  # takes the lock; closing the generator returns it
    return download
