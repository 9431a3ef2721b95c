r"""The numeric verifier: the same number within a relative tolerance, in any notation.

Plain numbers are compared by text alone. Constants such as `\frac{\pi}{4}`, which may take arbitrarily long, go to a
child process: `python -m workers.verifiers.short_answers.numeric MEMORY_BYTES SECONDS TOLERANCE`.
"""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from functools import partial

from workers.contract.verifier_kinds import ResponseExtraction
from workers.verifiers.children.child_server import Unscorable, serve_verifier
from workers.verifiers.mathematics.answers import clean
from workers.verifiers.mathematics.extraction import MAX_ANSWER_CHARACTERS, after_thoughts
from workers.verifiers.mathematics.plain_numbers import number, readings, regrouped
from workers.verifiers.mathematics.reading import answer_in
from workers.verifiers.mathematics.statements.negation_words import doubts
from workers.verifiers.scoring.verdicts import (
    CORRECT,
    INCORRECT,
    NO_ANSWER,
    NO_NUMBER,
    NO_REFERENCE,
    TOO_LONG,
    Query,
    Verdict,
)

_EQUALS = re.compile(r"=|\\approx(?![a-zA-Z])|\\simeq(?![a-zA-Z])|≈|\\sim(?![a-zA-Z])")
# A unit in plain letters: a word, or one of the usual single letters; m/s^2 and kg*m are units too.
# One letter at a time, so that there is one way to read a text, not 2^n: this runs in the trainer itself.
_UNIT = re.compile(r"(?<=[\d})%])\s*(?<![eE])(?:[a-zA-Zµ]{2}|[mgsKJNWVACFTLhH])(?:[/*·]?[a-zA-Zµ]|\^\{?-?\d\}?|\d)*$")
# They stand where a unit does, and make it another number.
_NO_UNITS = re.compile(
    r"squared|cubed|factorial|doubled|halved|negative|minus|plus|below|above|less|fewer|more|inf(?:inity)?|nan|half|halves"
    r"|(?:third|fourth|fifth|tenth|(?:hundred|thousand|million|billion)th)s?|(?:six|seven|eigh|nin)ths",
    re.IGNORECASE,
)


def tidy(text: str) -> str:
    """A cleaned text without a unit in plain letters at its end."""
    text = regrouped(clean(text))
    unit = _UNIT.search(text) if number(text) is None else None
    if unit is None or _NO_UNITS.fullmatch(unit[0].strip()):
        return text
    return text[: unit.start()].strip()


def is_close(value: Fraction, gold: Fraction, tolerance: float) -> bool:
    """|value - gold| <= tolerance * |gold|, exactly; for a gold of 0 only 0."""
    return abs(value - gold) <= Fraction(str(tolerance)) * abs(gold)


def numeric_answer(completion: str, extraction: ResponseExtraction) -> str | None:
    """The stated answer, or a response that is only a number; flexible: or its last number."""
    completion = after_thoughts(completion)
    stated = answer_in(completion, "strict")
    if stated is None and "\\boxed" not in completion:
        text = completion[:MAX_ANSWER_CHARACTERS]
        stated = completion.strip() if number(tidy(text)) is not None and not doubts(text) else None
    return stated if (stated or "").strip() else answer_in(completion, extraction)


def numeric_verdict(
    completion: str, gold: str, tolerance: float, extraction: ResponseExtraction = "strict"
) -> Verdict | Query:
    """The verdict if plain numbers decide, else the answer and gold for the child process."""
    stated = numeric_answer(completion, extraction)
    if stated is None or not stated.strip():
        return NO_ANSWER if extraction == "strict" else NO_NUMBER
    if not gold.strip():
        return NO_REFERENCE
    if len(stated) > MAX_ANSWER_CHARACTERS:
        return TOO_LONG
    answer, reference = _last_side(stated, gold, tolerance), tidy(gold)
    if answer is None:
        return INCORRECT
    value, gold_value = number(answer), number(reference)
    if value is None or gold_value is None:
        return _plain(answer, value), _plain(reference, gold_value)
    values = readings(answer, reference, value, gold_value)
    return CORRECT if any(is_close(*pair, tolerance) for pair in values) else INCORRECT


def _plain(text: str, value: Fraction | None) -> str:
    """What the child reads as well: it knows no percent, mixed numbers, repeating decimals or e of powers of ten."""
    return text if value is None else str(value)


def _last_side(answer: str, gold: str, tolerance: float) -> str | None:
    r"""The last side of `v = 2x = 3.2`; None if another side is a number other than the gold: `0=5`."""
    *others, last = (tidy(side) for side in _EQUALS.split(answer))
    gold_value = number(tidy(gold))
    for side in others:
        value = number(side)
        if value is not None and gold_value is not None and not is_close(value, gold_value, tolerance):
            return None
    return last


def is_equal_number(gold: str, answer: str, *, tolerance: float) -> bool:
    """Whether two constants agree. Error: Unscorable if the gold is not a constant, or too close to tell."""
    from workers.verifiers.mathematics.intervals import enclose, relative_distance

    gold_range = enclose(gold)
    if gold_range is None:
        raise Unscorable("the reference answer is no number")
    answer_range = enclose(answer)
    if answer_range is None:
        return False
    nearest, farthest = relative_distance(answer_range, gold_range)
    if farthest <= tolerance:
        return True
    if nearest > tolerance:
        return False
    raise Unscorable("too close to the tolerance to tell")


if __name__ == "__main__":
    serve_verifier(partial(is_equal_number, tolerance=float(sys.argv[3])), int(sys.argv[1]), int(sys.argv[2]))
