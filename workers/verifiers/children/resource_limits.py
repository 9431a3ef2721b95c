"""Limits from the kernel, lowered and never raised: whoever started this process may have set lower ones."""

from __future__ import annotations

import resource


def lower(limit: int, value: int, spare: int = 0) -> None:
    """Limit this process (a resource.RLIMIT_* constant) to `value`, for good; it may itself go up by `spare`."""
    top = _capped(limit, value + spare)
    resource.setrlimit(limit, (min(value, top), top))


def lower_for_now(limit: int, value: int) -> None:
    """The same until the next call, which may be higher again."""
    _, most = resource.getrlimit(limit)
    resource.setrlimit(limit, (_capped(limit, value), most))


def _capped(limit: int, value: int) -> int:
    _, most = resource.getrlimit(limit)
    return value if most == resource.RLIM_INFINITY else min(value, most)
