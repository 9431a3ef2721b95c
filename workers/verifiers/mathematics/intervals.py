r"""Constants such as `\frac{\log 2}{\log 2-\log 3}` as intervals that surely hold them: quick, and never written out.

Algebra systems spend seconds on some of these, and for ever on powers like `9^{9^9}`. Two intervals that do not touch
settle that two constants differ, however large they are. Runs in verifier children only. What is not plainly
one constant (a letter, a unit, an ambiguous fraction) is left to `workers.verifiers.mathematics.math_equal`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mpmath import iv, mpf

from workers.verifiers.mathematics.answers import rounding_unit

PRECISION_BITS = 256
MAX_DEPTH = 110  # five frames each, of Python's thousand
# Beyond 2 to this power a number is only known to be larger; its logarithm is still exact enough.
HUGE_BITS = 2**40
MAX_WHOLE_EXPONENT = 2**60
MAX_ANGLE = 2**100

iv.prec = PRECISION_BITS
_SURE_BITS = 180  # two constants that agree so far are taken for equal
_SURE_ZERO = mpf(2) ** -200
_SURE_SIZE = mpf(2) ** 64  # above, a difference of 1 would need more bits than there are
_EVERYTHING_ABOVE = iv.mpf([mpf(2) ** HUGE_BITS, mpf("inf")])

_TOKEN = re.compile(r"\d+(?:\.\d*)?|\.\d+|\\[a-zA-Z]+|\*\*|[-+*/^(){}!\[\]_]")
_TIMES = ("*", "\\cdot", "\\times")
_OVER = ("/", "\\div")
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "\\log": lambda x: _log(x) / iv.ln(10),  # as math-verify reads it
    "\\lg": lambda x: _log(x) / iv.ln(10),
    "\\ln": lambda x: _log(x),
    "\\exp": lambda x: _power(iv.e, x),
    "\\sin": lambda x: iv.sin(_angle(x)),
    "\\cos": lambda x: iv.cos(_angle(x)),
    "\\tan": lambda x: _over(iv.sin(_angle(x)), iv.cos(_angle(x))),
}
_STARTERS = {"(", "{", "\\frac", "\\sqrt", "\\binom", "\\pi", "\\lfloor", "\\lceil", *_FUNCTIONS}


class _Unread(Exception):
    """Not plainly a constant, or one that has no value."""


def enclose(text: str) -> Any | None:
    """The interval (mpmath's `iv`) that holds a cleaned constant; None where the text is none, or not plainly so."""
    try:
        return _Reader(text).whole()
    except (_Unread, RecursionError, ZeroDivisionError, ValueError, NotImplementedError):
        return None


def same_constant(gold: str, answer: str) -> bool | None:
    """Whether two cleaned constants are equal; None where either is none, or their intervals do not settle it.

    A decimal of six digits or more may be the other one rounded to them: docs/verifiers.md.
    """
    gold_range, answer_range = enclose(gold), enclose(answer)
    if gold_range is None or answer_range is None:
        return None
    for text, other in ((answer, gold_range), (gold, answer_range)):
        unit = rounding_unit(text)
        if unit is not None and _is_rounded(text, unit, other):
            return True
    if max(gold_range.a, answer_range.a) > min(gold_range.b, answer_range.b):
        return False
    if any((value.a == 0) != (value.b == 0) for value in (gold_range, answer_range)):
        return None  # too small to be told from 0
    spread = max(gold_range.b, answer_range.b) - min(
        gold_range.a, answer_range.a
    )  # touching intervals: how far apart at most
    size = max(abs(gold_range.a), abs(gold_range.b))
    is_sure = spread <= _SURE_ZERO or (size < _SURE_SIZE and spread <= size * mpf(2) ** -_SURE_BITS)
    return True if is_sure else None


def relative_distance(answer: Any, gold: Any) -> tuple[float, float]:
    """Least and greatest |answer - gold| / |gold| over two intervals; for a gold that may be 0 only 0 is near."""
    distance = abs(answer - gold)
    if 0 in gold:
        return (0.0, 0.0) if distance.b <= _SURE_ZERO else (float(distance.a > 0), float("inf"))
    share = distance / abs(gold)
    return float(share.a), float(share.b)


def _is_rounded(text: str, unit: Fraction, exact: Any) -> bool:
    """Whether a decimal is `exact` within a unit of its last digit; `exact` never ends, as far as can be seen."""
    finer = exact * (iv.mpf(10**6) * unit.denominator / unit.numerator)
    value = enclose(text)
    is_ending = exact.a == exact.b
    if value is None or is_ending or not abs(finer.b) < mpf(2) ** 200 or _floor(finer.a) != _floor(finer.b):
        return False
    return bool(abs(value - exact).b < (iv.mpf(unit.numerator) / unit.denominator).a)


def _floor(value: Any) -> int:
    return int(value.a) - (value.a < int(value.a))


def _log(x: Any) -> Any:
    if not x.a > 0:
        raise _Unread
    return iv.ln(x)


def _angle(x: Any) -> Any:
    if not abs(x).b < MAX_ANGLE:
        raise _Unread
    return x


def _over(top: Any, bottom: Any) -> Any:
    if 0 in bottom:
        raise _Unread
    return top / bottom


def _power(base: Any, exponent: Any) -> Any:
    """base ^ exponent; beyond HUGE_BITS only a bound."""
    whole = exponent.a == exponent.b and abs(exponent).b < MAX_WHOLE_EXPONENT and exponent.a == int(exponent.a)
    if not base.a > 0:
        if not whole or abs(exponent).b > 10**6 or (0 in base and not exponent.a > 0):
            raise _Unread
        return base ** int(exponent.a)
    bits = exponent * iv.ln(base) / iv.ln(2)
    if bits.a > HUGE_BITS:
        return _EVERYTHING_ABOVE
    if bits.b < -HUGE_BITS:
        return 1 / _EVERYTHING_ABOVE
    if not abs(bits).b < 2 * HUGE_BITS or (exponent.a == exponent.b and not abs(exponent).b < MAX_WHOLE_EXPONENT):
        raise _Unread
    return base ** int(exponent.a) if whole else iv.exp(exponent * iv.ln(base))


def _factorial(x: Any) -> Any:
    if x.a != x.b or x.a < 0:
        raise _Unread
    if x.a > HUGE_BITS:
        return _EVERYTHING_ABOVE  # n! > 2^n
    if x.a != int(x.a):
        raise _Unread
    return iv.factorial(x)


def _rounded_down(x: Any) -> Any:
    if abs(x).b < mpf(2) ** 200:
        low, high = _floor(x.a), _floor(x.b)
        return iv.mpf([low, high])
    return iv.mpf([(x - 1).a, x.b])


@dataclass
class _Reader:
    """Reads a text from left to right; each method takes one construct and returns its interval."""

    text: str
    at: int = 0
    depth: int = 0

    def whole(self) -> Any:
        value = self.sum()
        if self.peek():
            raise _Unread
        return value

    def peek(self) -> str:
        """The next token, "" at the end."""
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1
        if self.at == len(self.text):
            return ""
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise _Unread
        return match.group()

    def take(self, token: str = "") -> str:
        """Step over the next token; `token`: it must be this one."""
        current = self.peek()
        if not current or (token and current != token):
            raise _Unread
        self.at += len(current)
        return current

    def sum(self) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Unread
        value = self.product()
        while self.peek() in ("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        self.depth -= 1
        return value

    def product(self) -> Any:
        value, is_divided = self.signed(), False
        while token := self.peek():
            if token in _TIMES:
                self.take()
                value = value * self.signed()
            elif token in _OVER:
                self.take()
                value, is_divided = _over(value, self.signed()), True
            elif token in _STARTERS:
                # 1/2\pi may mean two things, and 1\frac{1}{2} is three halves.
                if is_divided or (token == "\\frac" and self.text[: self.at].rstrip()[-1:].isdigit()):
                    raise _Unread
                value = value * self.power()
            else:
                break
        return value

    def signed(self) -> Any:
        if self.peek() not in ("+", "-"):
            return self.power()
        sign = self.take()
        return -self.power() if sign == "-" else self.power()

    def power(self) -> Any:
        value = self.atom()
        if self.peek() == "!":
            self.take()
            value = _factorial(value)
        if self.peek() in ("^", "**"):
            self.take()
            value = _power(value, self.group() if self.peek() == "{" else self.signed())
        if self.peek() == "!":  # n!! is no factorial of a factorial
            raise _Unread
        return value

    def atom(self) -> Any:
        token = self.take()
        if token[0].isdigit() or token[0] == ".":
            return iv.mpf(token)
        if token == "(":
            return self.until(")")
        if token == "{":
            return self.until("}")
        if token == "\\frac":
            return _over(self.argument(), self.argument())
        if token == "\\sqrt":
            return self.root()
        if token == "\\binom":
            top, below = self.argument(), self.argument()
            return _factorial(top) / (_factorial(below) * _factorial(top - below))
        if token == "\\pi":
            return iv.pi * 1
        if token == "\\lfloor":
            return _rounded_down(self.until("\\rfloor"))
        if token == "\\lceil":
            return -_rounded_down(-self.until("\\rceil"))
        if token in _FUNCTIONS:
            return self.function(token)
        raise _Unread

    def until(self, end: str) -> Any:
        value = self.sum()
        self.take(end)
        return value

    def group(self) -> Any:
        self.take("{")
        return self.until("}")

    def argument(self) -> Any:
        """What TeX hands to a command: a group, or one character."""
        token = self.peek()
        if token == "{":
            return self.group()
        if token == "\\pi":
            return self.atom()
        if not token[:1].isdigit():
            raise _Unread
        self.at += 1
        return iv.mpf(token[0])

    def root(self) -> Any:
        degree = iv.mpf(2)
        if self.peek() == "[":
            self.take()
            degree = self.until("]")
        value = self.argument()
        if value.a == value.b == 0:
            return value
        if not value.a > 0 or not degree.a > 0:
            raise _Unread
        return iv.sqrt(value) if degree.a == degree.b == 2 else _power(value, 1 / degree)

    def function(self, name: str) -> Any:
        base = None
        if name == "\\log" and self.peek() == "_":
            self.take()
            base = self.argument()
        is_enclosed = self.peek() in ("{", "(")
        argument = self.atom()
        after = self.peek()
        if not is_enclosed and (after in ("^", "**", "!") or after in _TIMES or after in _OVER or after in _STARTERS):
            raise _Unread  # \sin 2\pi/3: where does the angle end?
        return _FUNCTIONS[name](argument) if base is None else _over(_log(argument), _log(base))
