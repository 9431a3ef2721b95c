"""Calls of several agents at the same time, each waited for by a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from workers.agents.interface import Answer
from workers.agents.messages import AgentLost


class ParallelCalls:
    """A thread for each of the agents, whose calls wait for other processes."""

    def __init__(self, num_agents: int) -> None:
        self._pool = ThreadPoolExecutor(num_agents, thread_name_prefix="agent")

    def begin(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """All calls begin now; each returned call waits for one answer."""
        futures = [self._pool.submit(call) for call in calls]
        return [partial(_wait, future, futures) for future in futures]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _wait(future: Future[Answer], all_of_them: Sequence[Future[Any]]) -> Answer:
    """One agent's answer. An error is raised after its peers have finished, so that none of them still writes."""
    try:
        return future.result()
    except AgentLost:  # ends the attempt, and with it the peers
        raise
    except Exception:
        wait(all_of_them)
        raise
