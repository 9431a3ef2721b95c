"""The files of a run: what they take on the disk, and the lock of a conversion that adds to them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from workers.contract.trainer_log import allocated_bytes

MAX_FILES = 20_000
CONVERSION_LOCK = "gguf.lock"  # in the run's folder; insight/checkpoints/conversions.py


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


def lock_conversion(run_dir: Path) -> int:
    """Take the lock of the run's only conversion; returns its descriptor, and a process that inherits it holds it too.

    Errors: BlockingIOError while a conversion is under way; OSError.
    """
    descriptor = os.open(run_dir / CONVERSION_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_converting(run_dir: Path) -> bool:
    """Whether a conversion of the run is under way on this host."""
    try:
        os.close(lock_conversion(run_dir))
    except BlockingIOError:
        return True
    except OSError:  # no such folder here
        return False
    return False
