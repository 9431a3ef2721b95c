"""How a run is asked to stop: a flag set from a signal handler, which the trainer looks at between phases. No torch."""

from __future__ import annotations

import signal
from types import FrameType


class Stopped(Exception):
    """Raised between two phases, when someone has asked the run to stop."""


class StopNow(BaseException):
    """Raised wherever the trainer is, when someone has asked a second time."""


class StopFlag:
    """Whether someone has asked."""

    def __init__(self) -> None:
        self.is_set = False

    def check(self) -> None:
        if self.is_set:
            raise Stopped

    def obey_signals(self) -> None:
        """TERM or Ctrl-C: stop after the current phase; the second time at once."""
        signal.signal(signal.SIGTERM, self._request)
        signal.signal(signal.SIGINT, self._request)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise StopNow
        self.is_set = True
