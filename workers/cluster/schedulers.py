"""What the launcher needs of a scheduler: start a job, ask whether it lives, cancel it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

LABEL = "hacrl-run"


class SchedulerError(Exception):
    """The scheduler does not answer, or refuses; the text says which and why."""


class Scheduler(Protocol):
    """name: the same for all attempts of a run, so that cancelling it ends whatever is left of earlier ones."""

    def start(self, name: str, command: list[str], keys: str) -> None:
        """Submit a job of one task. keys: of judges, as JSON, or empty. Error: SchedulerError."""

    def state(self, name: str) -> str:
        """The state of the job in the scheduler's words; empty once there is none. Error: SchedulerError."""

    def cancel(self, name: str) -> None:
        """Cancel all jobs of this name; it does not wait. Error: SchedulerError."""

    def forget_keys(self, name: str) -> None:
        """Called once the job has ended by itself. Error: SchedulerError."""


KEYS_VARIABLE = "HACRL_CLUSTER_KEYS"


def with_keys(environment: Mapping[str, str], keys: str) -> dict[str, str]:
    return {**environment, **({KEYS_VARIABLE: keys} if keys else {})}
