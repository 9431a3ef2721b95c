"""How a run is asked to stop or to pause: flags set from signal handlers, which the trainer looks at. No torch.

A stop is obeyed between two phases, a pause between two steps.
"""

from __future__ import annotations

import signal
from types import FrameType

from workers.contract.trainer_process import PAUSE_SIGNAL


class Stopped(Exception):
    """Raised between two phases, when someone has asked the run to stop."""


class Paused(Exception):
    """Raised between two steps, when someone has asked the run to pause; what could be saved is saved."""


class StopNow(BaseException):
    """Raised wherever the trainer is, when someone has asked a second time."""


class StopFlag:
    """Whether someone has asked."""

    def __init__(self) -> None:
        self.is_set = False
        self.is_pause_asked = False

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
        self.is_set = True

    def _request_pause(self, number: int, frame: FrameType | None) -> None:
        self.is_pause_asked = True
