"""The interface of environments: what answers an agent's turns within a rollout. One file for each; no torch."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from workers.questions.dataset import Question

Result = TypeVar("Result")
MAX_CHARACTERS = 100_000  # of an observation, before it is cut by tokens


class EnvironmentFailed(RuntimeError):
    """An environment cannot be loaded, raised, or gave a reward outside 0 to 1."""


@dataclass(frozen=True)
class Observation:
    """What an environment answers to a turn. is_failed: it could not do what the turn called for."""

    text: str
    role: Literal["tool", "user"] = "tool"
    is_failed: bool = False

    @property
    def clean_text(self) -> str:
        """The text as tokenizers take it: without half surrogate pairs, and not endless."""
        return self.text[:MAX_CHARACTERS].encode("utf-8", "replace").decode()


class Episode(ABC):
    """One rollout as its environment sees it."""

    @abstractmethod
    async def step(self, text: str) -> Observation | None:
        """The answer to a turn of the agent; None: the rollout is complete. text: without the EOS."""

    async def reward(self) -> float | None:
        """The reward after the last step, 0 to 1; None: the benchmark's verifier decides."""
        return None


class Environment(ABC):
    """An environment of a run. stop: texts that end a turn, besides the run's own; instructions: for the agents."""

    stop: tuple[str, ...] = ()
    instructions: str = ""

    @abstractmethod
    def reset(self, question: Question) -> Episode:
        """The episode of a new rollout."""

    def step_all(self, turns: Sequence[tuple[Episode, str]]) -> list[Observation | None]:
        """The answers to turns of different episodes, at the same time. Error: EnvironmentFailed."""
        return self._together([partial(episode.step, text) for episode, text in turns])

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        """The reward of each episode after its last step. Error: EnvironmentFailed."""
        rewards = self._together([episode.reward for episode in episodes])
        for reward in rewards:
            if reward is not None and not (math.isfinite(reward) and 0 <= reward <= 1):
                raise EnvironmentFailed(f"the environment's reward is {reward}: it must be from 0 to 1")
        return rewards

    def _together(self, calls: Sequence[Callable[[], Awaitable[Result]]]) -> list[Result]:
        async def every() -> list[Result]:
            return await asyncio.gather(*(call() for call in calls))

        try:
            return self._run(every())
        except EnvironmentFailed:
            raise
        except Exception as error:
            raise EnvironmentFailed(f"the environment raised {type(error).__name__}: {error}") from error

    def _run(self, work: Coroutine[Any, Any, list[Result]]) -> list[Result]:
        """Run a coroutine to its end."""
        return asyncio.run(work)
