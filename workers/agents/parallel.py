"""Calls of several agents at the same time, each waited for by a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic

from workers.agents.interface import Answer
from workers.agents.messages import AgentLost


@dataclass(frozen=True)
class BegunCall(Generic[Answer]):
    """A call that was begun with others: it returns the answer."""

    future: Future[Answer]
    all_of_them: Sequence[Future[Any]]

    def __call__(self) -> Answer:
        """One agent's answer. An error is raised after its peers have finished, so that none of them still writes."""
        try:
            return self.future.result()
        except AgentLost:  # ends the attempt, and with it the peers
            raise
        except Exception:
            wait(self.all_of_them)
            raise

    def has_ended_within(self, seconds: float) -> bool:
        """Whether there is an answer or an error, at the latest after `seconds`."""
        return not wait([self.future], seconds).not_done


def answered(answer: Answer) -> BegunCall[Answer]:
    """A call whose answer is known."""
    future: Future[Answer] = Future()
    future.set_result(answer)
    return BegunCall(future, [])


class ParallelCalls:
    """A thread for each of the agents, whose calls wait for other processes."""

    def __init__(self, num_agents: int) -> None:
        self._pool = ThreadPoolExecutor(num_agents, thread_name_prefix="agent")
        self._pending: list[Future[Any]] = []

    def begin(self, calls: Sequence[Callable[[], Answer]]) -> list[BegunCall[Answer]]:
        """All calls begin now; each returned call waits for one answer."""
        futures = [self._pool.submit(call) for call in calls]
        self._pending = [*(future for future in self._pending if not future.done()), *futures]
        return [BegunCall(future, futures) for future in futures]

    def has_ended_within(self, seconds: float) -> bool:
        """Whether all calls have ended, at the latest after `seconds`."""
        return not wait(self._pending, seconds).not_done

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
