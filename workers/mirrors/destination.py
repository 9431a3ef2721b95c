"""What the web and a process that writes say to each other: one JSON object per line, each answered by one line.

open    {"op": "open", "run", "kind", "options", "secret", "folder", "facts": {...}, "after", "state"}
        -> {"after", "state", "url"}: rows after `after` are to be sent; `state` is kept and given to the next open
rows    {"op": "rows", "run", "rows": [Row, ...]} -> {"state"}: they arrived, for good
close   {"op": "close", "run", "status"} -> {"state"}; status: completed, failed, stopped, or "" where the run goes on
error   any of them -> {"error": a sentence}, after which the run is no longer open
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workers.contract.mirrored_rows import MirroredRun, Row


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
