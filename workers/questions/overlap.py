"""Questions that two sets share: the same but for spacing, case and typography, or nearly the same.

Nearly the same: at least half of a question's 13-word pieces are in one question of the other set (Brown et al. 2020,
arXiv 2005.14165, appendix C, clean their tests by 13-gram overlap). Shorter questions have no such piece and must be
the same. Bounded in memory: above a million pieces every second one is dropped, repeatedly. Standard library only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from workers.questions.canonical import strict_key

PIECE_WORDS = 13
NEAR_SHARE = 0.5
MAX_PIECES = 1_000_000
MAX_EXAMPLES = 5
EXAMPLE_CHARACTERS = 600
_WORD = re.compile(r"\w+")


def pieces(question: str) -> list[int]:
    """A hash of every run of 13 words; hashes differ between processes."""
    words = _WORD.findall(question.casefold())
    return [hash(tuple(words[start : start + PIECE_WORDS])) for start in range(len(words) - PIECE_WORDS + 1)]


class KnownQuestions:
    """One set of questions, by number, to compare others with."""

    def __init__(self, questions: Iterable[str]) -> None:
        self._exact: dict[int, int] = {}
        self._pieces: dict[int, int] = {}  # piece -> number of the first question that holds it
        self._modulus = 1  # only pieces that it divides are stored
        for number, question in enumerate(questions):
            self._exact.setdefault(strict_key(question), number)
            for piece in pieces(question):
                if piece % self._modulus == 0:
                    self._pieces.setdefault(piece, number)
            while len(self._pieces) > MAX_PIECES:
                self._modulus *= 2
                self._pieces = {piece: first for piece, first in self._pieces.items() if piece % self._modulus == 0}

    def same(self, question: str) -> int | None:
        """The number of the same question, or None."""
        return self._exact.get(strict_key(question))

    def near(self, question: str) -> int | None:
        """The number of a nearly equal question, or None."""
        own = {piece for piece in pieces(question) if piece % self._modulus == 0}
        matches = Counter(self._pieces[piece] for piece in own if piece in self._pieces)
        if not matches:
            return None
        number, count = matches.most_common(1)[0]
        return number if count >= NEAR_SHARE * len(own) else None


@dataclass
class Overlap:
    """How many of some questions are known; examples: question, number of the known one, whether it is the same."""

    num_asked: int = 0
    num_same: int = 0
    num_near: int = 0
    examples: list[tuple[str, int, bool]] = field(default_factory=list)

    def as_dict(self, known_texts: Iterable[str]) -> dict[str, Any]:
        """As JSON. known_texts: the known questions again, for the texts of the examples."""
        numbers = {number for _, number, _ in self.examples}
        first_texts = enumerate(islice(known_texts, max(numbers, default=-1) + 1))
        texts = {number: text[:EXAMPLE_CHARACTERS] for number, text in first_texts if number in numbers}
        examples = [
            {"question": text[:EXAMPLE_CHARACTERS], "other": texts.get(number, ""), "is_same": is_same}
            for text, number, is_same in self.examples
        ]
        return {**vars(self), "examples": examples}


def count_overlap(questions: Iterable[str], others: KnownQuestions) -> Overlap:
    """How many of `questions` are among the others, exactly or nearly."""
    overlap = Overlap()
    for question in questions:
        overlap.num_asked += 1
        same = others.same(question)
        near = others.near(question) if same is None else None
        overlap.num_same += same is not None
        overlap.num_near += near is not None
        number = near if same is None else same
        if number is not None and len(overlap.examples) < MAX_EXAMPLES:
            overlap.examples.append((question, number, same is not None))
    return overlap
