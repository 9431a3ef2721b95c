"""Plain numbers, read exactly: integers, decimals, fractions, mixed numbers, powers of ten, percent, bases.

Standard library only; every step is linear in the text, and long texts are refused.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

MAX_EXPONENT = 400

_GROUPED = r"[1-9]\d{0,2}(?:,\d{3})+|\d+"
_NUMBER = re.compile(rf"({_GROUPED})?(?:\.(\d*)(?:\\overline\{{?(\d+)\}}?)?)?")
_POWER = re.compile(r"(?:(.*?)(?:\\times|\\cdot|\*)|)10\^(?:\{\s*([+-]?\d{1,4})\s*\}|([+-]?\d{1,4}))")
_EXPONENT = re.compile(r"(.*\d\.?)[eE]([+-]?\d{1,4})")
_RATIO = re.compile(r"(\d*)\\frac(?:\{([^{}]*)\}|(\d))(?:\{([^{}]*)\}|(\d))")
_MIXED = re.compile(r"(\d+) (\d+)/(\d+)")
_IN_BASE = re.compile(r"\(?(\d+)\)?_(?:\{(\d{1,2})\}|(\d))")

# 1'234'567, 1.234.567 and 12,34,567; with a comma before decimals: 0,5, 1.234,56 and 2,5\times10^{3}.
_OTHER_GROUPS = re.compile(r"(-?[1-9](?:\d{0,2}(?:\.\d{3}){2,}(?!\.)|\d{0,2}(?:'\d{3})+|\d?(?:,\d\d)+,\d{3}))(\.\d+)?")
_DECIMAL_COMMA = re.compile(r"(-?(?:\d+|\d{1,3}(?:[.']\d{3})+)),(\d*[1-9]\d*)(\s?\\?%|\s?\\(?:times|cdot)\s?10\^.+)?")
_APART = re.compile(r"(?<!\d) | (?!\d)")


def without_spaces(text: str) -> str:
    """The text without spaces, but for those between digits: 1 2 is not 12."""
    return _APART.sub("", text) if " " in text else text


@lru_cache(maxsize=4096)
def number(text: str) -> Fraction | None:
    """The exact value of a cleaned text that is a plain number: integer, decimal, fraction, power of ten, percent."""
    if len(text) > 200 and len(text := without_spaces(text)) > 200:
        return None
    if text.isascii() and text.isdecimal():
        return Fraction(int(text))
    text = without_spaces(text)
    sign = 1
    while text[:1] in ("+", "-") and text[1:2] not in ("+", "-"):
        sign, text = (-sign if text[0] == "-" else sign), text[1:]
    scale = Fraction(1)
    if text.endswith("%"):
        scale, text = Fraction(1, 100), text[:-1].rstrip("\\")
    text = re.sub(r"\^\{?\\circ\}?$", "", text)
    value = _unsigned(text)
    return None if value is None else sign * scale * value


def _unsigned(text: str) -> Fraction | None:
    if match := _POWER.fullmatch(text):
        exponent = int(match[2] or match[3])
        factor = Fraction(1) if match[1] is None else _unsigned(match[1])
        return _scaled(factor, exponent)
    if match := _EXPONENT.fullmatch(text):
        return _scaled(_decimal(match[1]), int(match[2]))
    if match := _RATIO.fullmatch(text):
        top, bottom = number(match[2] or match[3] or ""), number(match[4] or match[5] or "")
        return None if not bottom or top is None else Fraction(int(match[1] or 0)) + top / bottom
    if match := _MIXED.fullmatch(text):
        return Fraction(int(match[1])) + Fraction(int(match[2]), int(match[3])) if int(match[3]) else None
    if text.count("/") == 1:
        top, bottom = (_decimal(part) for part in text.split("/"))
        return None if not bottom or top is None else top / bottom
    return _decimal(text)


def _scaled(value: Fraction | None, exponent: int) -> Fraction | None:
    return None if value is None or abs(exponent) > MAX_EXPONENT else value * Fraction(10) ** exponent


def _decimal(text: str) -> Fraction | None:
    match = _NUMBER.fullmatch(text)
    if not match or not re.search(r"\d", text):
        return None
    whole, digits, repeating = match[1] or "0", match[2] or "", match[3]
    value = Fraction(int(whole.replace(",", "") + digits), 10 ** len(digits))
    if repeating:  # 0.1(6) is 1/10 + 6/90
        value += Fraction(int(repeating), 10 ** len(digits) * (10 ** len(repeating) - 1))
    return value


_LONG_DECIMAL = re.compile(r"-?(\d*)\.(\d{6,})(?:(?:\\times|\\cdot|\*)10\^\{?(-?\d{1,3})\}?|[eE]([+-]?\d{1,3}))?")


def rounding_unit(text: str) -> Fraction | None:
    """One unit of a decimal's last digit, if it has six decimals and six significant digits; else None.

    Such a decimal may be a rounded number. Significant digits count too: 0.000001 says little about 1/1234567.
    """
    match = _LONG_DECIMAL.fullmatch(text.replace(" ", ""))
    if not match or len((match[1] + match[2]).lstrip("0")) < 6:
        return None
    return Fraction(10) ** (int(match[3] or match[4] or 0) - len(match[2]))


def is_rounding(rounded: str, exact: Fraction) -> bool:
    """Whether a long decimal is `exact` rounded or cut to its last digit; `exact` has no end as a decimal."""
    unit, bottom = rounding_unit(rounded), exact.denominator
    for prime in (2, 5):
        while bottom % prime == 0:
            bottom //= prime
    if unit is None or bottom == 1:
        return False
    value = number(rounded)
    return value is not None and abs(value - exact) < unit


def in_base(text: str) -> tuple[str, int] | None:
    """Digits and base of a cleaned text like `1011_2`."""
    match = _IN_BASE.fullmatch(text.replace(" ", ""))
    return (match[1].lstrip("0") or "0", int(match[2] or match[3])) if match else None


def regrouped(text: str) -> str:
    """A number as other countries write its thousands and decimals, in digits and a point; else the text as it is."""
    if match := _DECIMAL_COMMA.fullmatch(text):
        return re.sub(r"[.']", "", match[1]) + f".{match[2]}{match[3] or ''}"
    if match := _OTHER_GROUPS.fullmatch(text):
        return re.sub(r"['.,]", "", match[1]) + (match[2] or "")
    return text


def readings(answer: str, gold: str, value: Fraction, gold_value: Fraction) -> list[tuple[Fraction, Fraction]]:
    """The pairs of values of which one must agree.

    50% also answers 50, and 50 also answers 50%, because the question may have asked for a percentage. A fraction, or
    a number up to 1, is no percentage: 0.375% does not answer 3/8.
    """
    pairs = [(value, gold_value)]
    if answer.endswith("%") and not gold.endswith("%") and abs(gold_value) > 1 and _NUMBER.fullmatch(gold.lstrip("+-")):
        pairs.append((value * 100, gold_value))
    if gold.endswith("%") and not answer.endswith("%"):
        pairs.append((value, gold_value * 100))
    return pairs


def decide_base(
    answer: str, gold: str, answer_digits: tuple[str, int] | None, gold_digits: tuple[str, int] | None
) -> bool | None:
    """Whether numbers with a base are equal: the same digits in the same base, or the same value."""
    if answer_digits and gold_digits:
        return answer_digits == gold_digits
    digits, plain = (answer_digits or gold_digits), (gold if answer_digits else answer)
    value = number(plain)
    if digits is None or value is None or not 2 <= digits[1] <= 36 or len(digits[0]) > 100:
        return None
    try:
        # The gold's base is known from the question, so its digits alone are accepted too.
        return value == int(*digits) or (gold_digits is not None and plain.replace(" ", "") == digits[0])
    except ValueError:  # a digit too large for its base
        return False
