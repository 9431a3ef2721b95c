"""What `./hacrl demo` prepares before its runs exist, in a file that the home page reads.

The file is valid while its writer holds a lock on it, which ends with the process: so a demo that was killed is not
shown as under way.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Protocol

from django.conf import settings

NAME = "demo-preparation.json"
MAX_TEXT, LENGTH = 200, 1000
TRIES, PAUSE_S = 20, 0.05


PHASES = ("Make two small models", "Check and register them", "Train and compare")


class Show(Protocol):
    """phase: the place in PHASES; percent: of that phase, where it is known."""

    def __call__(self, text: str, phase: int = 0, percent: int | None = None) -> None: ...


@dataclass(frozen=True)
class Preparation:
    """What a demo does now, as given to Show."""

    activity: str
    since: datetime
    phase: int = 0
    percent: int | None = None

    @property
    def phases(self) -> list[tuple[str, str]]:
        """(name, done, now or next) of each phase."""
        words = ["now" if place == self.phase else "done" if place < self.phase else "next" for place in range(3)]
        return list(zip(PHASES, words, strict=True))


@contextmanager
def preparing(activity: str) -> Iterator[Show]:
    """Shows on Home what a demo prepares; the yielded function begins the next step. A second demo shows nothing."""
    # Not in append mode, in which pwrite ignores its offset on Linux.
    descriptor = os.open(Path(settings.DATA_DIR) / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:
        if not _locked(file):
            yield _nothing
            return
        started = time.time()

        def show(text: str, phase: int = 0, percent: int | None = None) -> None:
            _write(file, {"doing": text[:MAX_TEXT], "since": started, "phase": phase, "percent": percent})

        show(activity)
        yield show


def _nothing(text: str, phase: int = 0, percent: int | None = None) -> None:
    """Show nothing: what a second demo gets in place of Show."""


def _write(file: IO[str], content: dict[str, Any]) -> None:
    # One write of constant length: a reader never sees half of it.
    os.truncate(file.fileno(), LENGTH)
    os.pwrite(file.fileno(), json.dumps(content, ensure_ascii=False).encode().ljust(LENGTH), 0)


def note_failure(text: str) -> None:
    """Keep why the demo could not be made, for Home; the next one removes it."""
    descriptor = os.open(Path(settings.DATA_DIR) / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:
        if _locked(file):
            _write(file, {"failure": text[:MAX_TEXT]})


def failure_text() -> str:
    """Why the last demo could not be made; empty if there was none, or it could."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        return str(json.loads((Path(settings.DATA_DIR) / NAME).read_text()).get("failure", ""))
    return ""


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
            since, percent = datetime.fromtimestamp(content["since"], UTC), content.get("percent")
            percent = percent if isinstance(percent, int) else None
            return Preparation(str(content["doing"]), since, int(content.get("phase", 0)), percent)
    return None
