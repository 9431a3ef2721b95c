r"""The second verifier of the audit, a child process that checks the first one's verdicts on the same responses.

It decides only clear cases: the same text, plain numbers, a letter in a box, no answer at all; of flexible extraction
a plain number among words; the kinds in `second_opinions` beside it where the answer and its characters are plain. It
matches no expressions. It follows the rules of the first verifier but shares no line of code with it, so that one
mistake does not affect both. Kinds that other code cannot judge are judged twice (`second_opinions.opinions`). Run as
`python -m workers.verifiers.cross_check MEMORY_BYTES SECONDS KIND TOLERANCE EXTRACTION`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial

from workers.verifiers.children.child_server import serve_verifier
from workers.verifiers.second_opinions.expressions import countdown_opinion
from workers.verifiers.second_opinions.followed import instructions_opinion
from workers.verifiers.second_opinions.objects import json_opinion
from workers.verifiers.second_opinions.overlap import rouge_opinion, words_opinion

BOX = "\\boxed"
# Signs of an answer without a box, which only the first verifier reads.
STATING = ("answer", "option", "choice", "####", "$", "\\)", "\\]")
MAX_CHARACTERS = 50_000
MAX_WORDS = 20_000  # characters of a response without a box
MAX_NUMBER_CHARACTERS = 60
ROUNDED_DIGITS = 6  # from here on, for the first verifier, a decimal may be a rounded fraction
LETTERS = "ABCDEFGHIJ"
# Words after a number that change it.
CHANGING = {"hundred", "thousand", "million", "billion", "trillion", "percent", "per", "x", "pi"}
# Behind a box, these words may take its answer back, which only the first verifier reads.
_DOUBTING_TEXT = """
actually apologies apologize bad can't cannot contradicts correct correction doesn't don't equals error errors fails
false hang hmm hmmm hold i ignore incorrect is isn't it's kidding let maybe mind mistake mistaken mistakes must no
nope not oops ought oversight perhaps possibly rather re-calculating re-checking re-computing re-counting real
recalculating rechecking recomputing reconsider recounting right scratch should slip sorry strike that's there there's
thought thoughts true violates wait was wasn't will would wrong
"""
DOUBTING = set(_DOUBTING_TEXT.split())
SIGNS_OF_EXPRESSIONS = set(".^$*+?{}[]\\|()")
_JUDGED_TWICE = ("python", "python_partial", "function", "judge")
_OPINIONS: dict[str, Callable[[str, str], bool | float | None]] = {
    "countdown": countdown_opinion,
    "words": words_opinion,
    "rouge": rouge_opinion,
    "json": json_opinion,
    "instructions": instructions_opinion,
}


def cross_check(
    gold: str, response: str, *, kind: str, tolerance: float = 0.0, extraction: str = "strict"
) -> bool | float | None:
    """Whether a response answers `gold`, or its partial credit; None if that is unclear.

    kind, extraction: of the first verifier.
    """
    if len(response) > MAX_CHARACTERS or "\\fbox" in response:
        return None
    if kind in _JUDGED_TWICE:
        return None
    if kind in _OPINIONS:
        return _OPINIONS[kind](gold, response)
    if kind == "regex" and (SIGNS_OF_EXPRESSIONS & set(gold) or gold != gold.strip()):
        return None
    response = response[response.rfind("</think>") + len("</think>") :] if "</think>" in response else response
    if "<think>" in response:
        return None
    gold, start = gold.strip(), response.rfind(BOX)
    if start < 0:
        if kind == "exact":
            return response.strip() == gold
        is_plain = not any(word in response.lower() for word in STATING)
        if extraction == "flexible":
            return _among_words(gold, response, kind, tolerance) if is_plain else None
        return False if is_plain and kind == "math" else None
    rest = response[start + len(BOX) :]
    if not rest.startswith("{"):
        return None
    answer = _group(rest)
    if answer is None:  # cut off inside its last box
        return False
    behind = {word.strip('*("$.,;:!?…)-–—').lower() for word in rest.split()}
    if kind in ("math", "numeric") and (behind & DOUBTING or "~~" in rest):
        return None
    return _compare(gold, answer, kind, tolerance)


def _compare(gold: str, answer: str, kind: str, tolerance: float) -> bool | None:
    """The same for a boxed answer."""
    if kind == "choice":
        letters = _letter(gold), _letter(answer)
        return None if None in letters else letters[0] == letters[1]
    if kind == "numeric":
        values = _number(gold), _number(answer)
        if values[0] is None or values[1] is None:
            return None
        return abs(values[1] - values[0]) <= abs(values[0]) * Fraction(Decimal(repr(tolerance)))
    if answer == gold:
        return bool(gold)
    return False if kind in ("exact", "regex") or not answer else _same_number(gold, answer)


def _among_words(gold: str, response: str, kind: str, tolerance: float) -> bool | None:
    """The same for a response whose last number is between words, or that has no digit."""
    if not response.isascii() or "think>" in response or "**" in response or len(response) > MAX_WORDS:
        return None
    words = [word.lstrip("*(").rstrip("*.,;:!?)") for word in response.split()]
    places = [place for place, word in enumerate(words) if any(letter.isdigit() for letter in word)]
    if not places:
        return False
    before, (number, *after) = words[: places[-1]], words[places[-1] :]
    is_changed = bool(after) and after[0].lower().rstrip("s") in CHANGING
    is_alone = (before[-1:] == ["="] or not before or before[-1].isalpha()) and all(word.isalpha() for word in after)
    # A line may begin with a mark of a list: 2. or 2)
    is_mark = bool(after) and any(line.split()[:1] in ([number + "."], [number + ")"]) for line in response.split("\n"))
    return _compare(gold, number, kind, tolerance) if is_alone and not is_changed and not is_mark else None


def _letter(text: str) -> str | None:
    r"""The letter of `B`, `(B)`, `B.`, `\text{B}`; None for anything else."""
    for command in ("\\text{", "\\textbf{", "\\mathrm{"):
        if text.startswith(command) and text.endswith("}"):
            text = text[len(command) : -1].strip()
    text = text[1:-1] if text[:1] == "(" and text[-1:] == ")" else text.removesuffix(".")
    return text if len(text) == 1 and text in LETTERS else None


def _group(text: str) -> str | None:
    """The content of the braces that `text` begins with; None if they are not closed."""
    depth, escaped = 0, False
    for place, letter in enumerate(text):
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        else:
            depth += (letter == "{") - (letter == "}")
            if depth == 0:
                return text[1:place].strip()
    return None


def _same_number(gold: str, answer: str) -> bool | None:
    """Whether two plain numbers are equal; None if one is not plain, or may be the other one rounded."""
    values = _number(gold), _number(answer)
    if values[0] is None or values[1] is None:
        return None
    is_equal = values[0] == values[1]
    may_be_rounded = any(len(text.partition(".")[2]) >= ROUNDED_DIGITS for text in (gold, answer))
    return None if may_be_rounded and not is_equal else is_equal


def _number(text: str) -> Fraction | None:
    r"""An integer, a decimal, or a fraction written 3/4 or \frac{3}{4}; None for anything else."""
    sign, text = (-1, text[1:]) if text[:1] == "-" else (1, text)
    if len(text) > MAX_NUMBER_CHARACTERS or not text.isascii():
        return None
    if text.startswith("\\frac{") and text.endswith("}"):
        text = text[len("\\frac{") : -1].replace("}{", "/")
    top, slash, bottom = text.partition("/")
    if slash:
        if not (top.isdigit() and bottom.isdigit() and int(bottom)):
            return None
        return sign * Fraction(int(top), int(bottom))
    whole, point, digits = text.partition(".")
    is_plain = whole.isdigit() and (digits.isdigit() if point else True)
    return sign * Fraction(Decimal(text)) if is_plain else None


if __name__ == "__main__":
    serve_verifier(
        partial(cross_check, kind=sys.argv[3], tolerance=float(sys.argv[4]), extraction=sys.argv[5]),
        int(sys.argv[1]),
        int(sys.argv[2]),
    )
