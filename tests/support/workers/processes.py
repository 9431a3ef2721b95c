"""Processes that a test may not leave behind."""

from __future__ import annotations

import time

import psutil

GONE_S = 10.0


def child_pids() -> set[int]:
    """Of this process and their children, to any depth."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


def remaining(before: set[int]) -> set[int]:
    """Children that were not there before and do not end within GONE_S. What else was there may end meanwhile."""
    deadline = time.monotonic() + GONE_S
    while (new := child_pids() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    return new
