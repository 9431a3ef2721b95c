"""What the watcher does for alerts: evaluates the rules, queues notifications, and sends them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hacrl_web.alerts.evaluate import Evaluator
from hacrl_web.alerts.notifications.notify import Notifier
from hacrl_web.alerts.notifications.send import send_due
from hacrl_web.ops.loop import repeat


@contextmanager
def watching(ended: threading.Event, interval_s: float) -> Iterator[list[Callable[[], Any]]]:
    """The acts of each round. Messages wait for other hosts, so a thread of its own sends them and delays no alert."""
    threading.Thread(target=repeat, args=([send_due], ended, interval_s), daemon=True).start()
    yield [Evaluator().tick, Notifier().tick]
