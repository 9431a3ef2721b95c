"""A folder in memory for weights on their way from a trainer to its rollout engine.

A trainer that is killed cannot remove its own; the next that starts on the host does, by the lock that died with it.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

MEMORY_FILES = Path("/dev/shm")  # noqa: S108 - where mkdtemp makes a folder
PREFIX, LOCK = "hacrl-weights-", "in-use"


class WeightFolder:
    """`path`: an empty folder, but for its lock, until `remove`."""

    def __init__(self, size_bytes: int) -> None:
        """In memory where twice the size is free there, else among the temporary files. Error: OSError."""
        place = _place_for(size_bytes)
        remove_left_behind(place)
        folder = Path(tempfile.mkdtemp(prefix=".new-", dir=place))
        self._lock = open(folder / LOCK, "w")  # noqa: SIM115 - held until the folder is removed
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Only now by the name that others look for: without its lock it would look left behind.
        self.path = folder.rename(place / folder.name.replace(".new-", PREFIX))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def remove_left_behind(place: Path) -> None:
    """Remove the folders whose trainers are gone."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError), open(path / LOCK) as lock:  # not ours, gone meanwhile, or in use
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)


def _place_for(size_bytes: int) -> Path:
    with suppress(OSError):
        if shutil.disk_usage(MEMORY_FILES).free > 2 * size_bytes:
            return MEMORY_FILES
    return Path(tempfile.gettempdir())
