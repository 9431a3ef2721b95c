"""What the web and a process that writes say to each other: one JSON object per line, each answered by one line.

open    {"op": "open", "run", "kind", "options", "secret", "folder", "facts": {...}, "after", "state"}
        -> {"after", "state", "url"}: rows after `after` are to be sent; `state` is kept and given to the next open
rows    {"op": "rows", "run", "rows": [Row, ...]} -> {"state"}: they arrived, for good
close   {"op": "close", "run", "status"} -> {"state"}; status: completed, failed, stopped, or "" where the run goes on
error   any of them -> {"error": a sentence}, after which the run is no longer open
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
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


class Destination:
    """One run at one destination. Any exception is shown to the people who set the mirror up, behind `place`.

    after: the destination has the rows up to it.  state: of the last time, then what the next time needs.
    url: of the run there.
    """

    place = ""

    def __init__(
        self,
        options: dict[str, str],
        secret: str,
        folder: str,
        facts: dict[str, Any],
        after: int,
        state: dict[str, Any],
    ) -> None:
        self.options, self.secret, self.folder = options, secret, Path(folder)
        self.run = MirroredRun(**facts)
        self.after, self.state, self.url = after, state, ""

    def open(self) -> None:
        """Begin or continue the run; sets after, state and url."""

    def send(self, rows: list[Row]) -> None:
        """Return when the destination has the rows for good."""

    def close(self, status: str) -> None:
        """End the session; status: of a run that has ended."""
