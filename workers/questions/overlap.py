"""Questions that stand in two sets: the same but for spacing, case and typography, or nearly the same.

Nearly the same: at least half of a question's 13-word pieces stand in one question of the other set (13-gram overlap is
what Brown et al. 2020, arXiv 2005.14165, appendix C, clean their tests by). Shorter questions have no such piece: only
being the same counts. Cheap, and bounded in memory: beyond a million pieces every second one is dropped, again and
again. Standard library only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from workers.questions.canonical import strict_key

PIECE_WORDS = 13
NEAR_SHARE = 0.5
MAX_PIECES = 1_000_000
MAX_EXAMPLES = 5
EXAMPLE_LETTERS = 600
_WORD = re.compile(r"\w+")


def pieces(question: str) -> list[int]:
    """A hash of every run of 13 words; the same in one process only."""
    words = _WORD.findall(question.casefold())
    return [hash(tuple(words[start : start + PIECE_WORDS])) for start in range(len(words) - PIECE_WORDS + 1)]


class KnownQuestions:
    """The one set, ready to be asked about questions of the other."""

    def __init__(self, questions: Iterable[str]) -> None:
        self._exact: dict[int, int] = {}
        self._pieces: dict[int, int] = {}  # piece -> number of the first question that holds it
        self._kept = 1  # one of so many pieces
        for number, question in enumerate(questions):
            self._exact.setdefault(strict_key(question), number)
            for piece in pieces(question):
                if piece % self._kept == 0:
                    self._pieces.setdefault(piece, number)
            while len(self._pieces) > MAX_PIECES:
                self._kept *= 2
                self._pieces = {piece: first for piece, first in self._pieces.items() if piece % self._kept == 0}

    def same(self, question: str) -> int | None:
        """The number of the question that is the same, or None."""
        return self._exact.get(strict_key(question))

    def near(self, question: str) -> int | None:
        """The number of the question that is nearly the same, or None."""
        own = {piece for piece in pieces(question) if piece % self._kept == 0}
        matches = Counter(self._pieces[piece] for piece in own if piece in self._pieces)
        if not matches:
            return None
        number, count = matches.most_common(1)[0]
        return number if count >= NEAR_SHARE * len(own) else None


@dataclass
class Overlap:
    """How many of the asked questions are known; examples: question, number of the known one, whether the same."""

    num_asked: int = 0
    num_same: int = 0
    num_near: int = 0
    examples: list[tuple[str, int, bool]] = field(default_factory=list)

    def as_dict(self, known_texts: Iterable[str]) -> dict[str, Any]:
        """known: the questions of the other set once more, for the texts of the examples."""
        numbers = {number for _, number, _ in self.examples}
        question_texts: dict[int, str] = {}
        for number, text in enumerate(known_texts) if numbers else ():
            if number in numbers:
                question_texts[number] = text[:EXAMPLE_LETTERS]
            if len(question_texts) == len(numbers):
                break
        return {
            "num_asked": self.num_asked,
            "num_same": self.num_same,
            "num_near": self.num_near,
            "examples": [
                {"question": text[:EXAMPLE_LETTERS], "other": question_texts.get(number, ""), "is_same": is_same}
                for text, number, is_same in self.examples
            ],
        }


def count_overlap(questions: Iterable[str], others: KnownQuestions) -> Overlap:
    """Which of `questions` are the same as known ones, or nearly."""
    overlap = Overlap()
    for question in questions:
        overlap.num_asked += 1
        same = others.same(question)
        near = None if same is not None else others.near(question)
        overlap.num_same += same is not None
        overlap.num_near += near is not None
        number = same if same is not None else near
        if number is not None and len(overlap.examples) < MAX_EXAMPLES:
            overlap.examples.append((question, number, same is not None))
    return overlap


def question_texts(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The questions of (id, question) pairs."""
    return (question for _, question in pairs)
