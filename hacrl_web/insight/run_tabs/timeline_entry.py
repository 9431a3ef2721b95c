"""One line of the list of all that happened to a run, and where the lines of a kind come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hacrl_web.web.schemas import EVERY_FIELD


@dataclass(frozen=True)
class TimelineEntry:
    """One line of the list. state, agent: shown as a badge or a chip; level: info, warning or error."""

    __pydantic_config__ = EVERY_FIELD
    at: float
    order: int  # among entries of the same moment and kind
    kind: str
    what: str
    detail: str
    attempt: int | None = None
    step: int | None = None
    state: str = ""
    agent: str = ""
    level: str = "info"

    @property
    def when(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


Source = tuple[Any, str, Callable[[Any], TimelineEntry]]  # rows, their column of time, function from row to entry
