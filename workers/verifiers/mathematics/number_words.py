r"""Numbers in English words: `\text{one hundred and five apples}` is `105\text{ apples}`. Standard library only."""

from __future__ import annotations

import re
from fractions import Fraction

_ONES = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES = {word: value for value, word in enumerate(_ONES.split())}
_VALUES |= {word: 10 * tens for tens, word in enumerate(_TENS.split(), start=2)}
_SCALES = {"hundred": 10**2, "dozen": 12, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = "half third quarter fifth sixth seventh eighth ninth tenth"
_DENOMINATORS = {word: place for place, word in enumerate(_PARTS.split(), start=2)} | {"fourth": 4, "hundredth": 100}
_PLURALS = {f"{word}s": value for word, value in _DENOMINATORS.items()} | {"halves": 2}
_NAMES = "|".join(sorted({*_VALUES, *_SCALES, *_DENOMINATORS, *_PLURALS, "and", "a", "an"}, key=len, reverse=True))
_SPOKEN = re.compile(
    rf"(?:\\text\s*\{{)?\s*((?:the\s+)?(?:(?:{_NAMES})(?:[\s-]+(?=[a-z])|(?![a-z])))+)(\s*[a-zA-Z ]*\}}?)$",
    re.IGNORECASE,
)
_REPEATED = re.compile(r"(-?\d+)\s*(?:\\text\s*\{\s*)?\(\s*(?:\\text\s*\{\s*)?([a-zA-Z][a-zA-Z -]*)\}?\s*\)\s*\}?")


def in_digits(text: str) -> str:
    r"""An answer that begins with a number in words, with digits for them; without the words of `5 \text{ (five)}`."""
    if match := _REPEATED.fullmatch(text):
        return match[1] if spoken_number(match[2]) == int(match[1]) else text
    match = _SPOKEN.fullmatch(text)
    value = spoken_number(match[1]) if match else None
    if match is None or value is None:
        return text
    digits = str(value) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    unit = match[2].strip(" }")
    return f"{digits}\\text{{ {unit}}}" if unit else digits


def spoken_number(words: str) -> Fraction | None:
    """The value of words that are wholly one number: `two thirds`, `three and a half`, `five hundred`; else None."""
    names = re.split(r"[\s-]+", words.lower().strip().removeprefix("the "))
    if names[-1] not in (*_DENOMINATORS, *_PLURALS):
        value = _whole(names)
        return None if value is None else Fraction(value)
    if len(names) == 1:
        return Fraction(1, _DENOMINATORS[names[0]]) if names[0] in ("half", "quarter") else None
    before, joint, top = [], False, names[:-1]
    if "and" in top:
        place = len(top) - 1 - top[::-1].index("and")
        before, joint, top = top[:place], True, top[place + 1 :]
    whole = _whole(before) if joint else 0
    count = 1 if top in ([], ["a"], ["an"], ["one"]) else _whole(top)
    is_plural = names[-1] in _PLURALS
    if whole is None or not count or count >= 20 or is_plural != (count > 1):
        return None  # "twenty-third" and "three half" are no fractions
    return whole + Fraction(count, (_PLURALS if is_plural else _DENOMINATORS)[names[-1]])


def _whole(names: list[str]) -> int | None:
    """The value of a whole number in words: groups below a thousand, each before its scale."""
    total, group, last = 0, 0, ""
    for place, name in enumerate(names):
        if name in ("a", "an"):
            if place or len(names) < 2 or names[1] not in _SCALES:
                return None
            group = 1
        elif name == "and":
            if last != "hundred" and last not in _SCALES:
                return None
        elif name in _VALUES:
            is_after_tens = last in _VALUES and _VALUES[last] >= 20 and 0 < _VALUES[name] < 10
            if last in _VALUES and not is_after_tens:
                return None
            group += _VALUES[name]
        elif name in ("hundred", "dozen"):
            if last in ("hundred", "dozen"):
                return None
            group = (group or 1) * _SCALES[name]
        elif name in _SCALES and (not total or _SCALES[name] < total):
            total, group = total + (group or 1) * _SCALES[name], 0
        else:
            return None
        last = name
    return None if last in ("and", "a", "an", "") else total + group
