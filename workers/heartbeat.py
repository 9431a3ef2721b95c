"""The trainer's pulse: a file whose time changes as long as work goes on. No torch.

A step of a large model can take an hour without an event. The loops inside it (one token, one micro-batch, one
verdict) call `beat`; the supervisor sees a file that changes and knows slow from hung. Never from a thread of its own:
that would go on beating in a hung trainer.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from workers.contract.trainer_process import PULSE_NAME

EVERY_S = 1.0


class _Pulse:
    def __init__(self) -> None:
        self.descriptor: int | None = None
        self.next = 0.0


_pulse = _Pulse()


def start(run_dir: Path) -> None:
    """From here on `beat` marks this run directory."""
    _pulse.descriptor = os.open(run_dir / PULSE_NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _pulse.next = 0.0


def descriptor() -> int | None:
    """Of the file, for a process of the trainer's own to beat as well; None before `start`."""
    return _pulse.descriptor


def take_over(descriptor: int) -> None:
    """In such a process: from here on `beat` marks the file that it was handed."""
    _pulse.descriptor, _pulse.next = descriptor, 0.0


def send_heartbeat() -> None:
    """Something was done. At most one write a second; none before `start`."""
    now = time.monotonic()
    if _pulse.descriptor is None or now < _pulse.next:
        return
    _pulse.next = now + EVERY_S
    with contextlib.suppress(OSError):
        os.utime(_pulse.descriptor)
