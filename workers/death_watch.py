"""Ends a process when the trainer that started it ends, for whatever reason. No torch."""

from __future__ import annotations

import os
import select
import threading


def die_with_trainer(socket: int) -> None:
    """End at once when the trainer's end of the socket closes, even during a call."""

    def watch() -> None:
        poll = select.poll()
        poll.register(socket, 0)  # a hang-up is always reported
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, name="death-watch", daemon=True).start()
