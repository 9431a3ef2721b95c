"""Agents of `placement: processes` whose processes are threads of the test: real pipes and real calls, at once."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest
import torch

from workers.agents import rank_main
from workers.agents.multi_process import RankedAgent

_loading = threading.Lock()  # loading a model sets what all threads share
_load = rank_main.load


class RankThread:
    """One rank's process, as RankedAgent sees it. It ends when its connection is closed."""

    pid = os.getpid()

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._thread = threading.Thread(target=self._serve, name="rank", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError), self._connection:
            rank_main.serve_rank(self._connection)

    def poll(self) -> int | None:
        return None if self._thread.is_alive() else 0

    def wait(self, timeout: float | None = None) -> int:
        self._thread.join(timeout)
        return 0

    def kill(self) -> None:
        """Its connection is closed already."""


def put_ranks_into_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(agent: RankedAgent, rank: int, size: int) -> None:
        ours, theirs = Pipe()
        agent._processes.append(RankThread(theirs))  # type: ignore[arg-type]
        agent._connections.append(ours)

    def load(request: object) -> object:
        with _loading:
            return _load(request)  # type: ignore[arg-type]

    monkeypatch.setattr(RankedAgent, "_start", start)
    monkeypatch.setattr(rank_main, "load", load)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
