"""Several actions at the same moment, each on a database connection of its own, for tests of what two do at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from django.db import connection


@contextmanager
def racing(count: int) -> Iterator[Callable[..., None]]:
    """A way to run `count` actions at the same moment, each on the connection that its thread keeps."""
    gate = threading.Barrier(count)

    def act(action):
        gate.wait()  # nobody begins, nor takes a second action, before all are here
        action()

    def leave():
        gate.wait()
        connection.close()

    with ThreadPoolExecutor(count) as pool:

        def race(*actions):
            for done in [pool.submit(act, action) for action in actions]:
                done.result()

        try:
            yield race
        finally:
            for _ in range(count):
                pool.submit(leave)
