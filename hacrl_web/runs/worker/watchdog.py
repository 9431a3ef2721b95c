"""The watchdog finds a hung trainer: neither its spool nor its heartbeat has changed for too long.

Only changes count, never a date, and a check that comes late counts as a short one. So clock jumps, a machine that
slept and a supervisor that was frozen kill no trainer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.contract.spool import SPOOL_NAME
from workers.contract.trainer_process import HEARTBEAT_NAME, TrainerProcess

STALL_FLOOR_S = 1800.0
STALL_FACTOR = 20.0  # times the longest step so far
LOADING_S = 7200.0  # before its first event: models come from slow disks and networks
LONGEST_CHECK_S = 5.0
DUMP_S = 0.5  # for the stacks to be written
log = logging.getLogger(__name__)


class Watchdog:
    """Watches one attempt; `reason` says why its trainer is considered hung, or is empty."""

    def __init__(self, run_dir: Path, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason = ""
        self._paths = (run_dir / SPOOL_NAME, run_dir / HEARTBEAT_NAME)
        self._timeout_s = timeout_s  # 0: derived from the steps
        self._now = clock
        self._has_started = False
        self._longest_step_s = 0.0
        self._signs: list[tuple[int, int] | None] = []
        self._silent_s = 0.0
        self._checked_at = clock()

    @property
    def limit_s(self) -> float:
        if not self._has_started:
            return max(LOADING_S, self._timeout_s)
        return self._timeout_s or max(STALL_FLOOR_S, STALL_FACTOR * self._longest_step_s)

    def note(self, record: dict[str, Any]) -> None:
        """Learn the start and the length of steps from an event of this attempt."""
        if record["type"] == "started":  # a warning of the supervisor itself may come before it
            self._has_started = True
        phases = record.get("phase_s")
        if record["type"] == "progress" and isinstance(phases, dict):
            step_s = sum(value for value in phases.values() if isinstance(value, int | float))
            self._longest_step_s = max(self._longest_step_s, step_s)

    def is_hung(self) -> bool:
        """Check once more for a change."""
        now = self._now()
        signs = [_sign(path) for path in self._paths]
        self._silent_s = self._silent_s + min(now - self._checked_at, LONGEST_CHECK_S) if signs == self._signs else 0.0
        self._signs, self._checked_at = signs, now
        return self._silent_s > self.limit_s

    def dump_stacks(self, trainer: TrainerProcess) -> None:
        """Have the trainer write its stacks to trainer.log, and set `reason`."""
        trainer.dump_stacks()
        time.sleep(DUMP_S)
        phase = "training" if self._has_started else "loading"
        silence = f"no sign of work for {self._silent_s:.0f} s while {phase}"
        self.reason = f"{silence}: the trainer is considered hung and was killed"
        log.warning("pid %d: %s", trainer.pid, self.reason)


def _sign(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = os.stat(path)
        return status.st_mtime_ns, status.st_size
    return None
