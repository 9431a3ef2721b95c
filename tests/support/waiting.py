"""How tests wait for what another process or thread does: they look again and again, and say whether it came."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float = 60.0, pause_s: float = 0.02) -> bool:
    """Look until it is true or the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(pause_s)
    return False
