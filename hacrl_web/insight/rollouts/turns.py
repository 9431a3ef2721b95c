"""The texts of recorded rollouts: turns with an environment, and what only one of two answers holds."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TypeVar

from typing_extensions import TypedDict

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
    """A turn as a page shows it. is_cut: the text continues."""

    is_cut: bool


def read_turns(text: str | None) -> list[RecordedTurn]:
    """The turns of a row; none if its run has no environment, or its texts are no longer kept."""
    return [RecordedTurn(_ROLES[role], of_turn, bool(failed)) for role, failed, of_turn in json.loads(text or "[]")]


def shown_turns(text: str | None, most_characters: int) -> list[ShownTurn]:
    """The turns with control characters written out. most_characters: of one turn."""
    return [
        ShownTurn(one.role, visible(one.text[:most_characters]), one.is_failed, len(one.text) > most_characters)
        for one in read_turns(text)
    ]


MAX_TOKENS = 1500  # of an answer; of longer ones nothing is marked
_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")
Answer = TypeVar("Answer")


class TextPart(TypedDict):
    """A part of an answer. differs: the other answer does not have it."""

    text: str
    differs: bool


def marked_parts(first: str, second: str) -> tuple[list[TextPart], list[TextPart]]:
    """Splits two texts into parts that are equal or differ, word by word; texts that are too long stay whole."""
    tokens: list[list[str]] = [_TOKEN.findall(text) for text in (first, second)]
    if max(map(len, tokens)) > MAX_TOKENS:
        return [{"text": first, "differs": False}], [{"text": second, "differs": False}]
    parts: tuple[list[TextPart], list[TextPart]] = ([], [])
    for kind, *ends in SequenceMatcher(None, tokens[0], tokens[1], autojunk=False).get_opcodes():
        for side, begin, end in ((0, ends[0], ends[1]), (1, ends[2], ends[3])):
            if begin < end:
                parts[side].append({"text": "".join(tokens[side][begin:end]), "differs": kind != "equal"})
    return parts


def best_answer(answers: Sequence[tuple[float | None, str, Answer]]) -> tuple[Answer, int] | None:
    """The answer to show of an agent: of its highest reward the most frequent text, and how often it gave it.

    answers: (reward, text, answer) of each of its rollouts to a prompt.
    """
    if not answers:
        return None
    counts = Counter(text for _, text, _ in answers)
    best = max(answers, key=lambda one: (-1.0 if one[0] is None else one[0], counts[one[1]]))
    return best[2], counts[best[1]]
