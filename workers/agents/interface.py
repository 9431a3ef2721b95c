"""The interface of agents and of their placement, as the trainer sees them. No torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
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
    def generate_extra(self, step: int, questions: Sequence[Question]) -> GeneratedRollouts: ...
    def keep_prompts(self, prompts: Sequence[int]) -> None: ...
    def update(
        self, mini_batches: Sequence[Sequence[LearnerRow]], learning_rate: float, *, measures_alignment: bool = False
    ) -> UpdateReport: ...
    def measure_alignment(self, rows: Sequence[LearnerRow]) -> dict[int, float | None]: ...
    def evaluate(self, step: int, questions: Sequence[Question], num_samples: int = 1) -> list[FinalAnswer]: ...
    def take_notes(self) -> list[str]: ...
    def has_sampled_within(self, seconds: float) -> bool: ...
    def save(self, folder: Path) -> None: ...
    def save_state(self, stem: Path) -> None: ...
    def load_state(self, stem: Path) -> None: ...


def forwarded(method: str) -> Any:
    """A method of RemoteAgent that the agent itself answers."""

    def call(self: RemoteAgent, *arguments: Any, **options: Any) -> Any:
        with self._turn:
            return self._answer(method, *arguments, **options)

    return call


class RemoteAgent(ABC):
    """An agent in other processes: every call of AgentInterface is forwarded, and its answer awaited.

    Calls may come from any thread; one waits until the one before it has its answer.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._turn = Lock()
        self._facts: dict[str, Any] = {}
        self._used_bytes: tuple[int, int | None] = (0, None)

    @abstractmethod
    def _answer(self, method: str, *arguments: Any, **options: Any) -> Any:
        """The agent's answer. Errors: AgentLost; what it raised itself."""

    @abstractmethod
    def _measured_bytes(self) -> tuple[int, int | None]:
        """The memory of its processes together, as memory.used_bytes. Error: AgentLost."""

    def used_bytes(self) -> tuple[int, int | None]:
        """RAM of its processes together, and the peak of the GPU that was used most; while it works, as before."""
        if self._turn.acquire(blocking=False):
            try:
                self._used_bytes = self._measured_bytes()
            finally:
                self._turn.release()
        return self._used_bytes

    def describe(self) -> dict[str, Any]:
        self._facts = self._facts or self._describe()  # they do not change, and it may be at work
        return self._facts

    _describe = forwarded("describe")
    prompt_lengths = forwarded("prompt_lengths")
    sample_ahead = forwarded("sample_ahead")
    generate = forwarded("generate")
    generate_extra = forwarded("generate_extra")
    keep_prompts = forwarded("keep_prompts")
    update = forwarded("update")
    measure_alignment = forwarded("measure_alignment")
    evaluate = forwarded("evaluate")
    take_notes = forwarded("take_notes")
    has_sampled_within = forwarded("has_sampled_within")
    save = forwarded("save")
    save_state = forwarded("save_state")
    load_state = forwarded("load_state")


class Placement(Protocol):
    """The agents of a run, in the spec's order, and a way to call several of them at once."""

    agents: Sequence[AgentInterface]
    device_name: str
    gpus: float  # held by all agents together
    is_parallel: bool  # whether agents that are called at once also work at the same time

    def begin(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Begin calls of different agents, at once if that is possible.

        Each returned call waits for its answer and raises what the agent raised.
        """

    def has_ended_within(self, seconds: float) -> bool:
        """Whether all calls that were begun have ended, at the latest after `seconds`."""

    def used_bytes(self) -> tuple[int, int | None]:
        """RAM of all processes together, and the peak memory of tensors on a GPU since the last call.

        It does not wait for an agent that works: that one's numbers are those of its last answer.
        """

    def close(self) -> None:
        """Release processes and devices. The agents cannot be called any more."""
