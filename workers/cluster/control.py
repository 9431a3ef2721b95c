"""The files of a run directory by which launcher and task know of each other, on a folder that both see.

control.json (launcher): a count that grows while it lives, and the signals that the trainer shall get.
node.json (task): a count that grows while the node lives.  ended.json (task): the trainer's exit status.
Each names its attempt. Only changes count, never a date: the clocks of two machines differ.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTROL, NODE, ENDED = "control.json", "node.json", "ended.json"
BEAT_S = 2.0
LOOK_S = 0.25
TASK_LEASE_S = 30.0  # a task that hears nothing of its launcher for so long ends its trainer
NODE_LEASE_S = 60.0  # and a launcher that hears nothing of its task for longer counts it as lost


def write_note(path: Path, **values: Any) -> None:
    """Replace the file as a whole. Error: OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.write_text(json.dumps(values))
    temporary.replace(path)


def read_note(path: Path) -> dict[str, Any]:
    """Empty if there is none, or none that can be read now."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


class Silence:
    """How long a value has not changed, by this process's clock. A check that comes late counts as a short one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._now = clock
        self._value: Any = None
        self._looked_at = clock()
        self.seconds = 0.0

    def note(self, value: Any) -> float:
        now = self._now()
        self.seconds = 0.0 if value != self._value else self.seconds + min(now - self._looked_at, BEAT_S)
        self._value, self._looked_at = value, now
        return self.seconds
