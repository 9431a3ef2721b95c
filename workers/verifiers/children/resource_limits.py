"""Kernel limits of this process, which are only ever lowered: its parent may have set lower ones."""

from __future__ import annotations

import resource


def lower(limit: int, value: int, spare: int = 0) -> None:
    """Set a limit (a resource.RLIMIT_* constant) for good; the process itself may raise it by `spare`."""
    top = _capped(limit, value + spare)
    resource.setrlimit(limit, (min(value, top), top))


def lower_for_now(limit: int, value: int) -> None:
    """Set a limit that the next call may raise again."""
    _, most = resource.getrlimit(limit)
    resource.setrlimit(limit, (_capped(limit, value), most))


def _capped(limit: int, value: int) -> int:
    _, most = resource.getrlimit(limit)
    return value if most == resource.RLIM_INFINITY else min(value, most)
