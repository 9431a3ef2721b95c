r"""Sets of real numbers: intervals, inequalities, their unions and set-builder forms, compared end by end.

`x<0 \text{ or } x>1`, `(-\infty,0)\cup(1,\infty)` and `\{x : x<0 \cup x>1\}` are one set. Only ends that are clearly
constants are read; everything else is left to `workers.verifiers.mathematics.math_equal`. Runs in verifier children.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from mpmath import iv

from workers.verifiers.mathematics.intervals import enclose, same_constant

_INFINITE = {"\\infty": 1, "+\\infty": 1, "-\\infty": -1}
_MAX_PIECES = 12

_BUILDER = re.compile(
    r"\\\{\s*([a-zA-Z])(?:\s*\\in\s*(?:\\mathbb\{R\}|\\mathbb R|R))?\s*(?:\||:|\\mid|\\vert|\\colon)\s*(.*)\\\}"
)
_MEMBER = re.compile(r"[a-zA-Z](?:\([a-zA-Z]\))?\s*\\in\s*")
_ALL = re.compile(r"\\mathbb\s*\{?\s*R\s*\}?")
_UNION = re.compile(r"\\cup(?![a-zA-Z])| or ")
_MEET = re.compile(r"\\cap(?![a-zA-Z])| and ")
_RELATION = re.compile(r"(<=|>=|<|>|\\(?:leqslant|geqslant|leq|geq|le|ge|lt|gt|ne|neq)(?![a-zA-Z]))")
_SIGNS = {"<=": "<=", "leq": "<=", "le": "<=", "leqslant": "<=", ">=": ">=", "geq": ">=", "ge": ">=", "geqslant": ">="}
_SIGNS |= {"<": "<", "lt": "<", ">": ">", "gt": ">", "ne": "!=", "neq": "!="}
_VARIABLE = re.compile(r"[a-zA-Z](?:_\{?\w+\}?)?(?:\([a-zA-Z]\))?|\\(?:theta|alpha|beta|lambda|mu|phi|varphi)")

_ABSOLUTE = re.compile(r"(?:\||\\lvert)\s*[a-zA-Z]\s*([+-][^|\\a-zA-Z]+)?\s*(?:\||\\rvert)")


@dataclass(frozen=True)
class End:
    """An end of an interval: its text, and the interval of numbers that contains its value."""

    text: str
    value: Any


@dataclass(frozen=True)
class Piece:
    """An interval of real numbers; a closed end belongs to it."""

    low: End
    high: End
    has_low: bool
    has_high: bool

    def is_empty(self) -> bool:
        if _is_same(self.low, self.high):
            return not (self.has_low and self.has_high)
        return bool(self.low.value.a > self.high.value.b)


_LOWEST, _HIGHEST = End("-\\infty", iv.mpf("-inf")), End("\\infty", iv.mpf("inf"))


class _NotARange(Exception):
    """A text that is not clearly a set of real numbers."""


def same_range(gold: str, answer: str) -> bool | None:
    """Whether two cleaned texts are the same set of reals; None if one of them is not clearly such a set."""
    if _is_pair(gold) and _is_pair(answer):
        return None  # (1,2) may be a point: the ends are compared as those of a tuple
    gold_pieces, pieces = _read(gold), _read(answer)
    if gold_pieces is None or pieces is None:
        return None
    if len(gold_pieces) != len(pieces):
        return False
    return all(
        _is_same(piece.low, other.low)
        and _is_same(piece.high, other.high)
        and (piece.has_low, piece.has_high) == (other.has_low, other.has_high)
        for piece, other in zip(gold_pieces, pieces, strict=True)
    )


def _is_pair(text: str) -> bool:
    return re.fullmatch(r"[(\[][^()\[\]]*,[^()\[\]]*[)\]]", text) is not None


def _read(text: str) -> list[Piece] | None:
    try:
        return _merged(_pieces(text))
    except _NotARange:
        return None


def _pieces(text: str) -> list[Piece]:
    """The intervals whose union the text is."""
    text = text.strip()
    if match := _BUILDER.fullmatch(text):
        text = match[2].strip()
    text = _MEMBER.sub("", text, count=1) if _MEMBER.match(text) else text
    if _ALL.fullmatch(text):
        return [Piece(_LOWEST, _HIGHEST, False, False)]
    parts = _UNION.split(text)
    if len(parts) > _MAX_PIECES:
        raise _NotARange
    if len(parts) > 1:
        return [piece for part in parts for piece in _pieces(part)]
    parts = _MEET.split(text)
    if len(parts) > 1:
        return _met([_pieces(part) for part in parts])
    if _RELATION.search(text):
        return _listed(text)
    return [_interval(text)]


def _listed(text: str) -> list[Piece]:
    """Inequalities between commas hold at once, or, where that is impossible, one of them: x<0, x>1."""
    sets = [_inequality(part) for part in text.split(",")]
    met = _met(sets)
    return met if met or len(sets) == 1 else [piece for pieces in sets for piece in pieces]


def _met(sets: list[list[Piece]]) -> list[Piece]:
    """The intersection of unions of intervals."""
    result = sets[0]
    for pieces in sets[1:]:
        if len(result) * len(pieces) > _MAX_PIECES:
            raise _NotARange
        result = [met for one in result for other in pieces if not (met := _both(one, other)).is_empty()]
    return result


def _both(one: Piece, other: Piece) -> Piece:
    low, has_low = (one.low, one.has_low) if _is_below(other.low, one.low) else (other.low, other.has_low)
    high, has_high = (one.high, one.has_high) if _is_below(one.high, other.high) else (other.high, other.has_high)
    if _is_same(one.low, other.low):
        has_low = one.has_low and other.has_low
    if _is_same(one.high, other.high):
        has_high = one.has_high and other.has_high
    return Piece(low, high, has_low, has_high)


def _interval(text: str) -> Piece:
    r"""`[0,1)`, also `]1,2[`. An infinite end is never closed: `(2,\infty]` is no interval."""
    match = re.fullmatch(r"([(\[\]])([^()\[\],]*),([^()\[\],]*)([)\]\[])", text.strip())
    if match is None:
        raise _NotARange
    piece = Piece(_end(match[2]), _end(match[3]), match[1] == "[", match[4] == "]")
    if (piece.low is _LOWEST and piece.has_low) or (piece.high is _HIGHEST and piece.has_high) or piece.is_empty():
        raise _NotARange
    return piece


def _inequality(text: str) -> list[Piece]:
    r"""`x<3`, `3>x`, `0\le x<1`, `x\ne 2`."""
    pieces = _RELATION.split(text)
    sides = [side.strip() for side in pieces[::2]]
    signs = [_SIGNS[sign.lstrip("\\")] for sign in pieces[1::2]]
    if len(sides) == 2 and (match := _ABSOLUTE.fullmatch(sides[0])):
        return _around(match[1] or "0", signs[0], sides[1])
    names = [place for place, side in enumerate(sides) if _VARIABLE.fullmatch(side)]
    if len(names) != 1 or len(sides) not in (2, 3) or (len(sides) == 3 and names != [1]):
        raise _NotARange
    result = [Piece(_LOWEST, _HIGHEST, False, False)]
    for place, side in enumerate(sides):
        if place == names[0]:
            continue
        sign = signs[min(place, names[0])]
        is_right = place > names[0]
        result = _met([result, _ray(sign, _end(side), is_right)])
    return result


def _around(shift: str, sign: str, distance: str) -> list[Piece]:
    r"""`|x|\le 1`, `|x-2|<1`: the numbers at that distance from the shift with the other sign."""
    value = enclose(distance)
    if value is None or value.a < 0 or sign == "!=":
        raise _NotARange
    low, high = (_end(f"-({shift})-({distance})"), _end(f"-({shift})+({distance})"))
    is_closed = sign.endswith("=")
    if sign[0] == "<":
        piece = Piece(low, high, is_closed, is_closed)
        return [] if piece.is_empty() else [piece]
    return [Piece(_LOWEST, low, False, is_closed), Piece(high, _HIGHEST, is_closed, False)]


def _ray(sign: str, end: End, is_right: bool) -> list[Piece]:
    """All numbers x with x < end, or, where the end is on the left, end < x."""
    if sign == "!=":
        return [Piece(_LOWEST, end, False, False), Piece(end, _HIGHEST, False, False)]
    is_closed = sign.endswith("=") and end not in (_LOWEST, _HIGHEST)
    if (sign[0] == "<") == is_right:
        return [Piece(_LOWEST, end, False, is_closed)]
    return [Piece(end, _HIGHEST, is_closed, False)]


def _end(text: str) -> End:
    text = text.strip()
    if sign := _INFINITE.get(text.replace(" ", "")):
        return _HIGHEST if sign > 0 else _LOWEST
    value = enclose(text)
    if value is None:
        raise _NotARange
    return End(text, value)


def _is_below(one: End, other: End) -> bool:
    return bool(one.value.b < other.value.a)


def _is_same(one: End, other: End) -> bool:
    if _LOWEST in (one, other) or _HIGHEST in (one, other):
        return one is other
    return one.text == other.text or same_constant(one.text, other.text) is True


def _merged(pieces: list[Piece]) -> list[Piece]:
    """The pieces in their order, those that touch in one: (0,1] with (1,2) is (0,2)."""
    union: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: (float(piece.low.value.a), not piece.has_low)):
        last = union[-1] if union else None
        if last and (
            _is_below(piece.low, last.high) or (_is_same(piece.low, last.high) and (piece.has_low or last.has_high))
        ):
            is_longer = _is_below(last.high, piece.high)
            has_high = piece.has_high if is_longer else last.has_high
            if _is_same(last.high, piece.high):
                has_high = last.has_high or piece.has_high
            union[-1] = Piece(last.low, piece.high if is_longer else last.high, last.has_low, has_high)
        else:
            union.append(piece)
    return union
