"""The trainer's heartbeat: a file whose time changes as long as work continues. No torch.

A step of a large model can take an hour without an event. The loops inside it (one token, one micro-batch, one
verdict) call `send_heartbeat`, so that the supervisor can tell slow from hung. Never call it from another thread, which
would continue in a hung trainer.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from workers.contract.trainer_process import HEARTBEAT_NAME

EVERY_S = 1.0


@dataclass
class _Heartbeat:
    descriptor: int | None = None
    next_s: float = 0.0


_heartbeat = _Heartbeat()


def start(run_dir: Path) -> None:
    """Send heartbeats to this run directory from now on."""
    take_over(os.open(run_dir / HEARTBEAT_NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def descriptor() -> int | None:
    """The file's descriptor, for processes that the trainer starts; None before `start`."""
    return _heartbeat.descriptor


def take_over(descriptor: int) -> None:
    """Send heartbeats to this descriptor from now on."""
    _heartbeat.descriptor, _heartbeat.next_s = descriptor, 0.0


def send_heartbeat() -> None:
    """Report progress: at most one write a second, none before `start`."""
    now = time.monotonic()
    if _heartbeat.descriptor is None or now < _heartbeat.next_s:
        return
    _heartbeat.next_s = now + EVERY_S
    with contextlib.suppress(OSError):
        os.utime(_heartbeat.descriptor)
