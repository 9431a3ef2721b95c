"""The interface of agents and of their placement, as the trainer sees them. No torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from workers.agents.messages import FinalAnswer, GeneratedRollouts, LearnerRow, UpdateReport
from workers.questions.dataset import Question

Answer = TypeVar("Answer")


class AgentInterface(Protocol):
    """One agent, in whatever process; see LocalAgent for what each call does."""

    name: str

    def describe(self) -> dict[str, Any]: ...
    def prompt_lengths(self, questions: Sequence[Question]) -> list[int]: ...
    def sample_ahead(self, step: int, questions: Sequence[Question]) -> None: ...
    def generate(self, step: int, questions: Sequence[Question]) -> GeneratedRollouts: ...
    def update(
        self, mini_batches: Sequence[Sequence[LearnerRow]], learning_rate: float, *, measures_alignment: bool = False
    ) -> UpdateReport: ...
    def measure_alignment(self, rows: Sequence[LearnerRow]) -> dict[int, float | None]: ...
    def evaluate(self, step: int, questions: Sequence[Question], num_samples: int = 1) -> list[FinalAnswer]: ...
    def take_notes(self) -> list[str]: ...
    def save(self, folder: Path) -> None: ...
    def save_state(self, stem: Path) -> None: ...
    def load_state(self, stem: Path) -> None: ...


class RemoteAgent(ABC):
    """An agent in other processes: every call of AgentInterface is forwarded, and its answer awaited."""

    name: str

    @abstractmethod
    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """The agent's answer. Errors: AgentLost; what it raised itself."""

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return partial(self._call, method)


class Placement(Protocol):
    """The agents of a run, in the spec's order, and a way to call several of them at once."""

    agents: Sequence[AgentInterface]
    device_name: str
    is_parallel: bool  # whether agents that are called at once also work at the same time

    def begin(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Begin calls of different agents, at once if that is possible.

        Each returned call waits for its answer and raises what the agent raised.
        """

    def used_bytes(self) -> tuple[int, int | None]:
        """RAM of all processes together, and the peak memory of tensors on a GPU since the last call."""

    def close(self) -> None:
        """Release processes and devices. The agents cannot be called any more."""
