"""What the web and a mirror process say to each other: one JSON object per line, each answered by one line.

open    {"op": "open", "kind", "options", "secret", "folder", "run": {...}, "after", "state"}
        -> {"after", "state", "url"}: rows after `after` are to be sent; `state` is kept and given to the next open
rows    {"op": "rows", "rows": [Row, ...]} -> {"ack", "state"}: everything up to seq `ack` arrived
close   {"op": "close", "status"} -> {"state"}; status: completed, failed, stopped, or "" where the run goes on
error   any of them -> {"error": a sentence}, after which the process ends
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

State = dict[str, Any]
# Of a table of rollouts; the keys of one in Row.rollouts.
COLUMNS = ("step", "agent", "prompt", "completion", "answer", "reward", "finish_reason", "num_tokens")
TABLE = "rollouts"  # its name at a destination


class MirrorProblem(Exception):
    """Why nothing can be sent, in a sentence for the people who set the mirror up."""


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class MirroredRun:
    """What a mirror may say of a run. settings: by dotted path."""

    id: str
    name: str
    project: str
    url: str
    tags: list[str]
    created: float
    settings: dict[str, Any]


@dataclass(frozen=True)
class Opening:
    """A request to continue a run at a destination, after event `after`."""

    options: dict[str, str]
    secret: str
    folder: Path
    run: MirroredRun
    after: int
    state: State = field(default_factory=dict)


@dataclass
class Opened:
    """after: rows behind this seq are to be sent; the destination has the others.  url: of the run there, or empty."""

    after: int
    state: State
    url: str = ""


class Session(Protocol):
    """One run at one destination."""

    def open(self) -> Opened: ...

    def send(self, rows: list[Row]) -> State:
        """Returns when the destination has the rows for good."""

    def close(self, status: str) -> State: ...


def import_problem(package: str) -> MirrorProblem:
    """For a package of the extra `mirrors` that is not installed."""
    return MirrorProblem(
        f"The Python package {package} is not installed on the host of the watcher: "
        f".venv/bin/pip install -c constraints.txt {package}"
    )
