"""Stop and pause requests: flags set by signal handlers, which the trainer reads. No torch."""

from __future__ import annotations

import signal
import time
from types import FrameType

from workers.contract.trainer_process import PAUSE_SIGNAL


class Stopped(Exception):
    """Raised between two phases, after a request to stop."""


class Paused(Exception):
    """Raised between two steps, after a request to pause and an attempt to save."""


class StopNow(BaseException):
    """Raised at any place, after a second request to stop."""


class StopFlag:
    """The requests of this process."""

    def __init__(self) -> None:
        self.is_set = False
        self.requested_at: float | None = None
        self.is_pause_requested = False

    @property
    def seconds_since_request(self) -> float:
        """Since the signal to stop; 0 without one."""
        return 0.0 if self.requested_at is None else time.monotonic() - self.requested_at

    def check(self) -> None:
        if self.is_set:
            raise Stopped

    def handle_signals(self) -> None:
        """TERM or Ctrl-C: stop after the current phase; the second time at once. USR1: pause after the step."""
        signal.signal(signal.SIGTERM, self._request)
        signal.signal(signal.SIGINT, self._request)
        signal.signal(PAUSE_SIGNAL, self._request_pause)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise StopNow
        self.is_set, self.requested_at = True, time.monotonic()

    def _request_pause(self, number: int, frame: FrameType | None) -> None:
        self.is_pause_requested = True
