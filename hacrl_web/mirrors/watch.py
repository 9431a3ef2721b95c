"""What the watcher does for mirrors: one follower for each, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hacrl_web.mirrors.follower import MirrorFollowers


@contextmanager
def watching(ended: threading.Event, interval_s: float) -> Iterator[list[Callable[[], Any]]]:
    """The acts of each round."""
    mirrors = MirrorFollowers()
    try:
        yield [mirrors.tick]
    finally:
        mirrors.stop()
