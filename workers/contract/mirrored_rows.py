"""What a mirror sends of a run, by step. Standard library only, for mirrors in another Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Of a table of rollouts; the keys of one in Row.rollouts.
COLUMNS = ("step", "agent", "prompt", "completion", "answer", "reward", "finish_reason", "num_tokens")
TABLE = "rollouts"  # its name at a destination


@dataclass
class Row:
    """The numbers of one step of one attempt, and some of its rollouts, if the mirror sends them.

    seq: of the last event that they come from.  time: seconds since 1970.
    """

    seq: int
    time: float
    step: int
    attempt: int
    values: dict[str, float]
    rollouts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def table(self) -> list[list[Any]]:
        """The rollouts' values, in the order of COLUMNS."""
        return [[rollout[name] for name in COLUMNS] for rollout in self.rollouts]


@dataclass
class MirroredRun:
    """What a mirror may say of a run. settings: by dotted path."""

    id: str
    name: str
    project: str
    url: str
    tags: list[str]
    created: float
    settings: dict[str, Any]
