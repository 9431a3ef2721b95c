"""What `./hacrl demo` prepares before its runs exist, in a file that the home page reads.

The file is valid while its writer holds a lock on it, which ends with the process: so a demo that was killed is not
shown as under way.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from django.conf import settings

NAME = "demo-preparation.json"
MAX_TEXT, LENGTH = 200, 1000
TRIES, PAUSE_S = 20, 0.05


@dataclass(frozen=True)
class Preparation:
    activity: str
    since: datetime


@contextmanager
def preparing(activity: str) -> Iterator[Callable[[str], None]]:
    """Within: home shows what is done; call the yielded function for the next step. A second demo shows nothing."""
    # Not in append mode, in which pwrite ignores its offset on Linux.
    descriptor = os.open(Path(settings.DATA_DIR) / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:
        if not _locked(file):
            yield lambda text: None
            return
        started = time.time()

        def show(text: str) -> None:
            # One write of constant length: a reader never sees half of it.
            line = json.dumps({"doing": text[:MAX_TEXT], "since": started}, ensure_ascii=False)
            os.truncate(file.fileno(), LENGTH)
            os.pwrite(file.fileno(), line.encode().ljust(LENGTH), 0)

        show(activity)
        yield show


def _locked(file: IO[str]) -> bool:
    """Take the lock. A page that reads holds it for a moment, another demo for long: then False."""
    for _ in range(TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(PAUSE_S)
    return False


def preparation() -> Preparation | None:
    """What a demo prepares now, if one runs."""
    with suppress(OSError, ValueError, KeyError, TypeError), open(Path(settings.DATA_DIR) / NAME) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            content = json.load(file)
            return Preparation(str(content["doing"]), datetime.fromtimestamp(content["since"], UTC))
    return None
