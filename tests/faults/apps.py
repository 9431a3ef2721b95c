"""Loaded into every process of a world (settings.py): shortened time-outs, points to crash at, a clock that jumps.

Short times change how long a fault takes, not what happens. Files in the data folder trigger the rest: `crash-NAME`
kills the process that reaches that point (once), `clock` holds the seconds by which the clock is ahead, and `silence`
(once) has a worker send Redis no further request for messages, for good, though it stays connected and alive.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from django.apps import AppConfig

# Name: (the product's, here). The tests compute promised times from both.
SHORT = {
    "hacrl_web.runs.worker.supervisor.STOP_GRACE_S": (30.0, 3.0),
    "hacrl_web.runs.worker.supervisor.DATABASE_PAUSE_S": (2.0, 0.3),
    "hacrl_web.runs.worker.supervisor.HEARTBEAT_S": (2.0, 0.5),
    "hacrl_web.runs.worker.hosts.HEARTBEAT_S": (5.0, 1.5),
    "hacrl_web.runs.worker.dispatcher.NOTIFY_EVERY_S": (10.0, 2.0),
    "hacrl_web.runs.worker.dispatcher.LEASE_S": (45.0, 9.0),
    "hacrl_web.runs.messages.pubsub.PAUSE_S": (5.0, 1.0),
}
CLOCK_LOOK_S = 0.2


def crash_file(data: Path, name: str) -> Path:
    return data / f"crash-{name}"


class FaultsConfig(AppConfig):
    name = "tests.faults"
    label = "faults"

    def ready(self) -> None:
        for path, (usual, short) in SHORT.items():
            module, _, name = path.rpartition(".")
            found = getattr(import_module(module), name)
            if found != usual:
                raise RuntimeError(f"{path} is {found}, not {usual}: update tests/faults/apps.py")
            setattr(import_module(module), name, short)
        self._crash_points()
        if "worker" in sys.argv:
            _may_fall_silent(_data() / "silence")
        Clock(_data() / "clock").install()

    def _crash_points(self) -> None:
        from hacrl_web.runs.messages import worker_queue
        from hacrl_web.runs.telemetry import shipper

        # A batch is stored and the supervisor does not know yet; a batch is half stored.
        shipper.publish_update = _may_crash("after-commit", shipper.publish_update)  # type: ignore[assignment]
        shipper.insert = _may_crash("in-transaction", shipper.insert, after=True)  # type: ignore[assignment]
        if "dispatch" not in sys.argv:  # a run is stored and no worker is notified
            worker_queue.notify_worker = _may_crash("before-notify", worker_queue.notify_worker)  # type: ignore[assignment]


def _may_fall_silent(path: Path) -> None:
    """The consumer of this process requests nothing from the moment that it finds the file, which it removes."""
    from kombu.transport.redis import Channel

    request, silent = Channel._brpop_start, threading.Event()

    def request_unless_silent(channel: Channel, *arguments: Any) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            silent.set()
        if not silent.is_set():
            request(channel, *arguments)

    Channel._brpop_start = request_unless_silent


def _data() -> Path:
    from django.conf import settings

    return Path(settings.DATA_DIR)


def _may_crash(name: str, function: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    path = crash_file(_data(), name)

    def crash_if_asked() -> None:
        try:
            path.unlink()  # only one process gets it
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if not after:
            crash_if_asked()
        result = function(*arguments, **named)
        if after:
            crash_if_asked()
        return result

    return wrapped


class Clock:
    """The wall clock of this process, ahead by what the file says. The monotonic clock goes as ever."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ahead_s = 0.0
        self.next_look = 0.0

    def look(self) -> float:
        if time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + CLOCK_LOOK_S
            self.ahead_s = float(self.path.read_text()) if self.path.exists() else 0.0
        return self.ahead_s

    def install(self) -> None:
        import psutil
        from django.utils import timezone

        now, seconds, booted = timezone.now, time.time, psutil._pslinux.boot_time
        timezone.now = lambda: now() + timedelta(seconds=self.look())
        time.time = lambda: seconds() + self.look()
        # The kernel reports the moment of its start by the wall clock, which jumps too.
        psutil._pslinux.boot_time = lambda: booted() + self.look()
