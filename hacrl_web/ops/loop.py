"""The loop of the processes that look at the rows again and again (dispatch, watch): no error of one look ends it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.db import Error, connection

log = logging.getLogger(__name__)


def pulse_file() -> Path | None:
    """The file by which somebody outside sees that the process still looks."""
    return Path(name) if (name := os.environ.get("HACRL_PULSE_FILE")) else None


def repeat(
    acts: Sequence[Callable[[], Any]], ended: threading.Event, interval_s: float, pulse: Path | None = None
) -> None:
    """Do each act, in order, every `interval_s` until told to end; one that fails does not keep the next from it.

    pulse: touched after each round.
    """
    while not ended.is_set():
        for act in acts:
            try:
                act()
            except Error as error:
                log.warning("the database does not answer (%s); trying again", error)
                connection.close()
            except Exception:
                log.exception("a look failed; trying again")
        if pulse:
            pulse.touch()
        ended.wait(interval_s)
