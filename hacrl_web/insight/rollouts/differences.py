"""Two answers to one prompt beside each other: what only one of them holds, and which of an agent's answers to show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TypeVar

from typing_extensions import TypedDict

MAX_TOKENS = 1500  # of an answer; of longer ones nothing is marked
_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")
Answer = TypeVar("Answer")


class TextPart(TypedDict):
    """A part of an answer. differs: the other answer does not have it."""

    text: str
    differs: bool


def marked_parts(first: str, second: str) -> tuple[list[TextPart], list[TextPart]]:
    """Both texts in parts, compared word by word; each part as it stands alone where the texts are too long."""
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
