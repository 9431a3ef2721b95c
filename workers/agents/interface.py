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

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        with self._turn:
            return self._answer(method, *arguments, **options)

    def used_bytes(self) -> tuple[int, int | None]:
        """RAM of its processes together, and the peak of the GPU that was used most; while it works, as before."""
        if self._turn.acquire(blocking=False):
            try:
                self._used_bytes = self._measured_bytes()
            finally:
                self._turn.release()
        return self._used_bytes

    def describe(self) -> dict[str, Any]:
        self._facts = self._facts or self._call("describe")  # they do not change, and it may be at work
        return self._facts

    def prompt_lengths(self, questions: Sequence[Question]) -> list[int]:
        lengths: list[int] = self._call("prompt_lengths", questions)
        return lengths

    def sample_ahead(self, step: int, questions: Sequence[Question]) -> None:
        self._call("sample_ahead", step, questions)

    def generate(self, step: int, questions: Sequence[Question]) -> GeneratedRollouts:
        generated: GeneratedRollouts = self._call("generate", step, questions)
        return generated

    def generate_extra(self, step: int, questions: Sequence[Question]) -> GeneratedRollouts:
        generated: GeneratedRollouts = self._call("generate_extra", step, questions)
        return generated

    def keep_prompts(self, prompts: Sequence[int]) -> None:
        self._call("keep_prompts", prompts)

    def update(
        self, mini_batches: Sequence[Sequence[LearnerRow]], learning_rate: float, *, measures_alignment: bool = False
    ) -> UpdateReport:
        report: UpdateReport = self._call("update", mini_batches, learning_rate, measures_alignment=measures_alignment)
        return report

    def measure_alignment(self, rows: Sequence[LearnerRow]) -> dict[int, float | None]:
        alignment: dict[int, float | None] = self._call("measure_alignment", rows)
        return alignment

    def evaluate(self, step: int, questions: Sequence[Question], num_samples: int = 1) -> list[FinalAnswer]:
        answers: list[FinalAnswer] = self._call("evaluate", step, questions, num_samples)
        return answers

    def take_notes(self) -> list[str]:
        notes: list[str] = self._call("take_notes")
        return notes

    def has_sampled_within(self, seconds: float) -> bool:
        has_sampled: bool = self._call("has_sampled_within", seconds)
        return has_sampled

    def save(self, folder: Path) -> None:
        self._call("save", folder)

    def save_state(self, stem: Path) -> None:
        self._call("save_state", stem)

    def load_state(self, stem: Path) -> None:
        self._call("load_state", stem)


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
