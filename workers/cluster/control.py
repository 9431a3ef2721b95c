"""The files of a run directory by which launcher and task know of each other, on a folder that both see.

control.json (launcher): a count that grows while it lives, and the signals that the trainer shall get. It and how the
files are written are in workers/contract/cluster/job.py.
node.json (task): a count that grows while the node lives.  ended.json (task): the trainer's exit status.
Each names its attempt. Only changes count, never a date: the clocks of two machines differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

NODE, ENDED = "node.json", "ended.json"
BEAT_S = 2.0
LOOK_S = 0.25
NODE_LEASE_S = 60.0  # above TASK_LEASE_S: a launcher that hears nothing of its task for so long counts it as lost


class ChangeTimer:
    """How long a value has not changed, by this process's clock. A check that comes late counts as a short one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._now = clock
        self._value: Any = None
        self._looked_at = clock()
        self.seconds = 0.0

    def seconds_unchanged(self, value: Any) -> float:
        now = self._now()
        self.seconds = 0.0 if value != self._value else self.seconds + min(now - self._looked_at, BEAT_S)
        self._value, self._looked_at = value, now
        return self.seconds
