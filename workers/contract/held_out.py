"""Which questions are held out, by a stable hash of their text. Contract: standard library only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def question_key(question: str) -> str:
    """What makes two questions the same: their text, but for spaces."""
    return " ".join(question.split())


def split_position(question: str) -> float:
    """A stable number from 0 to 1, by the question's text alone."""
    digest = hashlib.sha256(b"held out:" + question_key(question).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def held_out_limit(places: Iterable[float], fraction: float) -> float:
    """Questions whose place is at most this are held out; negative: none. Neither side is left empty."""
    by_place = sorted(places)
    if fraction == 0 or len(by_place) < 2:
        return -1.0
    return min(max(fraction, by_place[0]), by_place[-2])
