r"""The answer of a response in one way of writing, and its comparison with the gold if plain text decides.

The rules in their order: decoration is dropped, phrases are dropped, units are split off, words are compared as text,
numbers exactly, and colons as written. All other answers go to `workers.verifiers.mathematics.math_equal`. Standard
library only; every step is linear in the text, and long texts are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from workers.verifiers.mathematics.decoration import undecorated
from workers.verifiers.mathematics.number_words import in_digits
from workers.verifiers.mathematics.plain_numbers import (
    decide_base,
    in_base,
    is_rounding,
    number,
    readings,
    regrouped,
    without_spaces,
)
from workers.verifiers.mathematics.units import Unit, conflict, spaced_unit, split_unit
from workers.verifiers.mathematics.words import plain_connectives, same_words, without_phrases


@dataclass(frozen=True)
class Answer:
    """A cleaned text, and the unit that stood with it."""

    text: str
    unit: Unit


_WHOLE_TEXT = re.compile(r"\\text\s*\{([^{}]*\d[^{}]*)\}")
_LETTER = re.compile(r"\\text\s*\{\s*([a-zA-Z])\s*\}")
_ANY_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_COLONS = re.compile(r"[^:{}\\]+(?::[^:{}\\]+)+")
# Before a condition of cases: `x & \\text{if } x>0`, or without the sign.
_CASE_WORDS = re.compile(r"[,;.]?\s*&?\s*\\text\s*\{\s*,?\s*(?:if|for|when)\b\s*([^{}]*)\}")
_RATIO_NAMES = re.compile(r"[a-zA-Z][\w{} ]*(?::[a-zA-Z ][\w{} ]*)+=\s*(?=[^=:]+:[^=]*$)")
_FRACTION = re.compile(r"\\frac\{([^{}]*)\}\{([^{}]*)\}")
_CLOCK = re.compile(r"\d{1,2}:[0-5]\d(?::[0-5]\d)?")
_SEMICOLONS = re.compile(r"[(\[\]][^;()]+(?:;[^;()]+)+[)\]\[]")  # (1,5;2)
_BRACKETED = re.compile(r"([(\[])([^()\[\]]*,[^()\[\]]*)([)\]])")
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")


@lru_cache(maxsize=4096)
def read_answer(text: str) -> Answer:
    """The answer without decoration and phrases, its unit apart."""
    if _PLAIN.fullmatch(text):
        return Answer(text, {})
    text = without_phrases(undecorated(text))
    if match := _WHOLE_TEXT.fullmatch(text):
        text = without_phrases(undecorated(match[1]))
    if "{cases}" in text:
        text = _CASE_WORDS.sub(r"& \1 ", text)
    text, unit = split_unit(in_digits(text))
    text = plain_connectives(_LETTER.sub(r" \1 ", text).strip())
    if ";" in text and _SEMICOLONS.fullmatch(text):
        text = re.sub(r"(?<=\d),(?=\d)", ".", text).replace(";", ",")
    return Answer(text.strip().rstrip(".,;").strip(), unit)


def read_beside(text: str, gold: Answer) -> Answer:
    """The answer as it is read beside a reference: a number with a unit or thousands that nothing else fits."""
    answer = read_answer(text)
    if (number(gold.text) is None and not gold.unit) or number(answer.text) is not None:
        return answer
    text, unit = spaced_unit(answer.text) or (answer.text, answer.unit)
    return Answer(regrouped(text), unit)


def clean(text: str) -> str:
    """The cleaned text of an answer, without its unit."""
    return read_answer(text).text


def spoken_answer(text: str) -> str:
    r"""An answer without decoration and without `\text`: what it says, not what it is worth."""
    return re.sub(r"\s+", " ", _ANY_TEXT.sub(r"\1", undecorated(text))).strip()


def decide(answer: str, gold: str) -> bool | None:
    """Whether a cleaned answer equals a cleaned gold; None if plain text does not decide."""
    if not answer:
        return False
    if without_spaces(answer) == without_spaces(gold):
        return True
    answer_value, gold_value = number(answer), number(gold)
    if answer_value is not None and gold_value is not None:
        return (
            any(value == other for value, other in readings(answer, gold, answer_value, gold_value))
            or is_rounding(answer, gold_value)
            or is_rounding(gold, answer_value)
        )
    if (
        (one := _BRACKETED.fullmatch(answer))
        and (other := _BRACKETED.fullmatch(gold))
        and (one[1], one[3]) == (other[1], other[3])
    ):
        pairs = [*zip(*([part.strip() for part in match[2].split(",")] for match in (one, other)), strict=False)]
        is_plain = one[2].count(",") == other[2].count(",") and all(
            number(part) is not None for pair in pairs for part in pair
        )
        if is_plain:  # of a tuple, as of an interval
            return all(decide(*pair) for pair in pairs)
    names = [match.end() if (match := _RATIO_NAMES.match(text)) else 0 for text in (answer, gold)]
    if names.count(0) == 1:  # `a:b=2:3` beside `2:3`
        answer, gold = answer[names[0] :], gold[names[1] :]
    words = same_words(answer, gold)
    if words is not None:
        return words
    answer_digits, gold_digits = in_base(answer), in_base(gold)
    if answer_digits or gold_digits:
        return decide_base(answer, gold, answer_digits, gold_digits)
    if re.search(r"\d \d", answer) and re.fullmatch(r"[\d. ]+", answer):
        return False  # two numbers side by side are not a number
    return _decide_colons(answer, gold)


def is_other_unit(answer: Answer, gold: Answer) -> bool:
    """Whether both state a unit, and not the same one. Percent is one beside another."""
    is_percent = [one.text.endswith("%") for one in (answer, gold)]
    if is_percent[0] != is_percent[1] and (gold.unit if is_percent[0] else answer.unit):
        return True
    return conflict(answer.unit, gold.unit)


def _decide_colons(answer: str, gold: str) -> bool | None:
    """Times and ratios are compared part by part: 6:15 is not 12:30, and no fraction. None without a colon."""
    is_colons = [_COLONS.fullmatch(text) is not None for text in (answer, gold)]
    if not any(is_colons):
        return None
    if not all(is_colons):
        colons, other = (answer, gold) if is_colons[0] else (gold, answer)
        quotient = _FRACTION.sub(r"\1/\2", without_spaces(other))
        is_fraction = quotient == without_spaces(colons.replace(":", "/"))
        return is_fraction and not _CLOCK.fullmatch(colons)
    parts = [[_part(part.strip()) for part in text.split(":")] for text in (answer, gold)]
    return parts[0] == parts[1]


def _part(text: str) -> object:
    """A part of a time or a ratio: its value, or its text."""
    value = number(text)
    return text if value is None else value
