"""Calls of several agents at the same time, each waited for by a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic

from workers.agents.interface import AgentInterface, Answer, RemoteAgent
from workers.agents.messages import AgentLost
from workers.model import memory


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
        """Begin all calls; each returned call waits for one answer."""
        futures = [self._pool.submit(call) for call in calls]
        self._pending = [*(future for future in self._pending if not future.done()), *futures]
        return [BegunCall(future, futures) for future in futures]

    def has_ended_within(self, seconds: float) -> bool:
        """Whether all calls have ended, at the latest after `seconds`."""
        return not wait(self._pending, seconds).not_done

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class ParallelPlacement:
    """Agents in processes of their own, all of which work at the same time."""

    is_parallel = True
    agents: Sequence[AgentInterface] = ()

    def __init__(self, num_agents: int) -> None:
        self._calls = ParallelCalls(num_agents)
        self._agents: Sequence[RemoteAgent] = ()

    def begin(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Begin all calls, each in its agent's process."""
        return self._calls.begin(calls)

    def has_ended_within(self, seconds: float) -> bool:
        return self._calls.has_ended_within(seconds)

    def used_bytes(self) -> tuple[int, int | None]:
        """RAM of the trainer and all agents; the peak of the GPU that was used most."""
        return memory.bytes_together([memory.used_bytes(), *(agent.used_bytes() for agent in self._agents)])
