"""Processes that a test may not leave behind."""

from __future__ import annotations

import contextlib
import time

import psutil

GONE_S = 10.0


def child_pids() -> set[int]:
    """Of this process and their children, to any depth."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


def remaining(before: set[int]) -> dict[int, str]:
    """Command lines by pid of children that were not there before, run, and do not end within GONE_S."""
    deadline = time.monotonic() + GONE_S
    while (new := _running(child_pids() - before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return new


def _running(pids: set[int]) -> dict[int, str]:
    lines = {}
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                lines[pid] = " ".join(process.cmdline())
    return lines
