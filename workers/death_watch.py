"""How a process that a trainer has started ends with it, however that happens. No torch."""

from __future__ import annotations

import os
import select
import threading


def die_with_trainer(socket: int) -> None:
    """End at once when the trainer's end of the socket closes, also amid a call."""

    def watch() -> None:
        poll = select.poll()
        poll.register(socket, 0)  # hanging up is told in any case
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, name="death-watch", daemon=True).start()
