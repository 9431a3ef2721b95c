"""The turns of a recorded rollout with an environment: what the agent wrote, and what it was answered."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hacrl_web.web.visible import visible

LABELS = {"assistant": "agent", "tool": "tool", "user": "environment"}
_ROLES = {role[:1]: role for role in LABELS}  # as telemetry/tables.py stores them


@dataclass(frozen=True)
class RecordedTurn:
    """role: assistant, tool or user.  is_failed: the tool could not do what it was called for."""

    role: str
    text: str
    is_failed: bool

    @property
    def label(self) -> str:
        """Who wrote it, in a word."""
        return LABELS.get(self.role, self.role)


@dataclass(frozen=True)
class ShownTurn(RecordedTurn):
    """As a page shows it. is_cut: the text continues."""

    is_cut: bool


def read_turns(text: str | None) -> list[RecordedTurn]:
    """The turns of a row; none if its run has no environment, or its texts are no longer kept."""
    return [RecordedTurn(_ROLES[role], of_turn, bool(failed)) for role, failed, of_turn in json.loads(text or "[]")]


def shown_turns(text: str | None, most_characters: int) -> list[ShownTurn]:
    """With control characters written out. most_characters: of one turn."""
    return [
        ShownTurn(one.role, visible(one.text[:most_characters]), one.is_failed, len(one.text) > most_characters)
        for one in read_turns(text)
    ]
