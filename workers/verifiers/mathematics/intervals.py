r"""Interval arithmetic: the interval that contains a constant such as `\frac{\log 2}{\log 2-\log 3}`.

Algebra systems take seconds for some constants, and never finish powers like `9^{9^9}`. Two constants differ if their
intervals do not touch, however large they are. Runs in verifier children only. Texts that are not clearly one constant
(a letter, a unit, an ambiguous fraction) are left to `workers.verifiers.mathematics.math_equal`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mpmath import iv, mpf

from workers.verifiers.mathematics.plain_numbers import rounding_unit

PRECISION_BITS = 256
MAX_DEPTH = 110  # five frames each, of Python's 1000
# Of a number above 2 to this power only a lower bound is computed; the precision of its logarithm would suffice.
HUGE_BITS = 2**40
MAX_WHOLE_EXPONENT = 2**60
MAX_ANGLE = 2**100

iv.prec = PRECISION_BITS
_SURE_BITS = 180  # constants that agree so far count as equal
_SURE_ZERO = mpf(2) ** -200
_SURE_SIZE = mpf(2) ** 64  # above it the precision is too low to see a difference of 1
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
# Sums, products and whole powers of numbers and letters that only multiply: no f(x), no e, no i.
_NAME = re.compile(r"[abcj-zA-DF-HJ-NP-Z](?!\s?\()")
_POLYNOMIAL = re.compile(
    rf"(?=.*[a-zA-Z])(?:\d{{1,12}}(?:\.\d{{1,6}})?|{_NAME.pattern}|[-+*() ]|\^(?:\d(?!\d)|\{{\d{{1,2}}\}})){{1,200}}"
)


class _NotAConstant(Exception):
    """A text that is not clearly a constant, or has no value."""


def enclose(text: str) -> Any | None:
    """The interval (mpmath's `iv`) that contains a cleaned constant; None if the text is not clearly one."""
    try:
        return _ConstantReader(text).whole()
    except (_NotAConstant, RecursionError, ZeroDivisionError, ValueError, NotImplementedError):
        return None


def same_constant(gold: str, answer: str) -> bool | None:
    """Whether two cleaned constants are equal; None if one is not a constant, or the intervals do not decide.

    A decimal of six digits or more may be the other constant rounded: docs/verifiers.md.
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
        return None  # too small to distinguish from 0
    # The greatest difference between constants in intervals that touch.
    spread = max(gold_range.b, answer_range.b) - min(gold_range.a, answer_range.a)
    size = max(abs(gold_range.a), abs(gold_range.b))
    is_sure = spread <= _SURE_ZERO or (size < _SURE_SIZE and spread <= size * mpf(2) ** -_SURE_BITS)
    return True if is_sure else None


def same_polynomial(gold: str, answer: str) -> bool | None:
    """Whether two cleaned polynomials have the same value at a point that only the two texts tell; None for others.

    Such as agree at it in 180 bits are equal: none can be written to agree, because another text has another point.
    """
    if not (_POLYNOMIAL.fullmatch(gold) and _POLYNOMIAL.fullmatch(answer)):
        return None

    def at_point(match: re.Match[str]) -> str:
        digest = hashlib.sha256(f"{match[0]}|{gold}|{answer}".encode()).hexdigest()
        return f"(1.{int(digest[:16], 16):020d})"

    return same_constant(_NAME.sub(at_point, gold), _NAME.sub(at_point, answer))


def relative_distance(answer: Any, gold: Any) -> tuple[float, float]:
    """Least and greatest |answer - gold| / |gold| over two intervals; to a gold that may be 0 only 0 is close."""
    distance = abs(answer - gold)
    if 0 in gold:
        if distance.a > 0:
            return 1.0, float("inf")
        return (0.0, 0.0) if distance.b <= _SURE_ZERO else (0.0, float("inf"))
    share = distance / abs(gold)
    return float(share.a), float(share.b)


def _is_rounded(text: str, unit: Fraction, exact: Any) -> bool:
    """Whether a decimal is `exact` within one unit of its last digit, and `exact` seems to have no end."""
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
        raise _NotAConstant
    return iv.ln(x)


def _angle(x: Any) -> Any:
    if not abs(x).b < MAX_ANGLE:
        raise _NotAConstant
    return x


def _over(top: Any, bottom: Any) -> Any:
    if 0 in bottom:
        raise _NotAConstant
    return top / bottom


def _power(base: Any, exponent: Any) -> Any:
    """base ^ exponent; above HUGE_BITS only a bound."""
    whole = exponent.a == exponent.b and abs(exponent).b < MAX_WHOLE_EXPONENT and exponent.a == int(exponent.a)
    if not base.a > 0:
        if not whole or abs(exponent).b > 10**6 or (0 in base and not exponent.a > 0):
            raise _NotAConstant
        return base ** int(exponent.a)
    bits = exponent * iv.ln(base) / iv.ln(2)
    if bits.a > HUGE_BITS:
        return _EVERYTHING_ABOVE
    if bits.b < -HUGE_BITS:
        return 1 / _EVERYTHING_ABOVE
    if not abs(bits).b < 2 * HUGE_BITS or (exponent.a == exponent.b and not abs(exponent).b < MAX_WHOLE_EXPONENT):
        raise _NotAConstant
    return base ** int(exponent.a) if whole else iv.exp(exponent * iv.ln(base))


def _factorial(x: Any) -> Any:
    if x.a != x.b or x.a < 0:
        raise _NotAConstant
    if x.a > HUGE_BITS:
        return _EVERYTHING_ABOVE  # n! > 2^n
    if x.a != int(x.a):
        raise _NotAConstant
    return iv.factorial(x)


def _rounded_down(x: Any) -> Any:
    if abs(x).b < mpf(2) ** 200:
        low, high = _floor(x.a), _floor(x.b)
        return iv.mpf([low, high])
    return iv.mpf([(x - 1).a, x.b])


@dataclass
class _ConstantReader:
    """Reads a text from left to right; each method reads one construct and returns its interval."""

    text: str
    at: int = 0
    depth: int = 0

    def whole(self) -> Any:
        value = self.sum()
        if self.peek():
            raise _NotAConstant
        return value

    def peek(self) -> str:
        """The next token, empty at the end."""
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1
        if self.at == len(self.text):
            return ""
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise _NotAConstant
        return match.group()

    def take(self, token: str = "") -> str:
        """Go past the next token, which must be `token` unless that is empty."""
        current = self.peek()
        if not current or (token and current != token):
            raise _NotAConstant
        self.at += len(current)
        return current

    def sum(self) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _NotAConstant
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
                # 1/2\pi is ambiguous, and 1\frac{1}{2} is three halves.
                if is_divided or (token == "\\frac" and self.text[: self.at].rstrip()[-1:].isdigit()):
                    raise _NotAConstant
                value = value * self.power()
            else:
                break
        return value

    def signed(self) -> Any:
        sign = self.take() if self.peek() in ("+", "-") else ""
        return -self.power() if sign == "-" else self.power()

    def power(self) -> Any:
        value = self.atom()
        if self.peek() == "!":
            self.take()
            value = _factorial(value)
        if self.peek() in ("^", "**"):
            self.take()
            value = _power(value, self.group() if self.peek() == "{" else self.signed())
        if self.peek() == "!":  # n!! is not the factorial of a factorial
            raise _NotAConstant
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
        raise _NotAConstant

    def until(self, end: str) -> Any:
        value = self.sum()
        self.take(end)
        return value

    def group(self) -> Any:
        self.take("{")
        return self.until("}")

    def argument(self) -> Any:
        """An argument of a TeX command: a group, or one character."""
        token = self.peek()
        if token == "{":
            return self.group()
        if token == "\\pi":
            return self.atom()
        if not token[:1].isdigit():
            raise _NotAConstant
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
            raise _NotAConstant
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
            raise _NotAConstant  # \sin 2\pi/3: where does the angle end?
        return _FUNCTIONS[name](argument) if base is None else _over(_log(argument), _log(base))
