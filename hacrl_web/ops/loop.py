"""The loop of the dispatcher and the watcher, which continues after errors."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.db import Error, connection

log = logging.getLogger(__name__)


def liveness_file() -> Path | None:
    """The file whose time shows that the process is alive."""
    return Path(name) if (name := os.environ.get("HACRL_PULSE_FILE")) else None


def repeat(
    acts: Sequence[Callable[[], Any]], ended: threading.Event, interval_s: float, liveness: Path | None = None
) -> None:
    """Call each act, in order, every `interval_s` seconds until `ended`; after an error the next one is called.

    liveness: file to touch after each round.
    """
    while not ended.is_set():
        for act in acts:
            try:
                act()
            except Error as error:
                log.warning("the database does not answer (%s); will try again", error)
                connection.close()
            except Exception:
                log.exception("%s failed; will try again", act)
        if liveness:
            liveness.touch()
        ended.wait(interval_s)
