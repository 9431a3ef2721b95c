"""The child process that compares mathematical answers by computer algebra, if plain text does not decide.

Run as `python -m workers.verifiers.mathematics.math_equal MEMORY_BYTES SECONDS`;
`workers.verifiers.children.child_server` has its loop and its limits.
"""

from __future__ import annotations

import logging
import re
import signal
import string
import sys
from typing import Any

from workers.verifiers.children.child_server import serve_verifier
from workers.verifiers.mathematics.answers import decide
from workers.verifiers.mathematics.intervals import same_constant, same_polynomial
from workers.verifiers.mathematics.lists import same_list
from workers.verifiers.mathematics.plain_numbers import number
from workers.verifiers.mathematics.ranges import same_range

_SURE_BITS = 180  # complex constants that agree so far count as equal, as others do
_DIGITS = 70  # decimal ones of each, more than these bits
_EQUALS = re.compile(r"(?<![\\<>!=:])=(?!=)")
_NAME = re.compile(r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{?\w+\}?)?(?:'|\([a-zA-Z, ]*\))?")
# Infinity belongs to no set of numbers.
_CLOSED_INFINITY = re.compile(r"\\infty\s*\]|\[\s*-\s*\\infty")
_PRIMED_NUMBER = re.compile(r"\d\s*(?:'|\^\{?\\prime)")
_LETTER_OR_DOTS = re.compile(
    r"(?<![\\a-zA-Z])(?!operatorname)[a-zA-Z]|\\[lc]?dots(?![a-zA-Z])|\.\.\."
    r"|\\(?:alpha|beta|[gG]amma|[dD]elta|(?:var)?epsilon|zeta|eta|(?:var)?[tT]heta|iota|kappa|[lL]ambda|mu|nu|[xX]i"
    r"|(?:var)?rho|(?:var)?[sS]igma|tau|[uU]psilon|(?:var)?[pP]hi|chi|[pP]si|[oO]mega|ell)(?![a-zA-Z])"
)
# Symbols that the parser folds, drops or multiplies: R and r, a prime, SRMC. Commands, environments and the words in
# text fonts are none.
_SYMBOL = re.compile(
    r"\\(?:begin|end|operatorname\*?|math[a-z]+|text)\s*\{[^{}]*\}|\\[a-zA-Z]+|[A-Z]{4,}|[a-zA-Z](?:'+|\^\{?\\prime\}?)|[a-zA-Z]"
)
_KEPT = frozenset("deifghEIO")  # letters with a meaning of their own


def _distinct_symbols(*texts: str) -> tuple[str, ...] | None:
    """The texts with letters that neither uses in place of symbols that algebra would confuse; None without enough."""
    names = {name for text in texts for name in _SYMBOL.findall(text) if name[0] != "\\"}
    folded = {name.lower() for name in names if len(name) == 1}
    to_replace = [name for name in sorted(names) if len(name) > 1 or (name.isupper() and name.lower() in names)]
    if not to_replace:
        return texts
    free = [letter for letter in string.ascii_lowercase if letter not in folded and letter not in _KEPT]
    if len(free) < len(to_replace):
        return None
    letters = dict(zip(to_replace, free, strict=False))
    return tuple(_SYMBOL.sub(lambda match: letters.get(match[0], match[0]), text) for text in texts)


def _parse(text: str) -> Any:
    from math_verify import LatexExtractionConfig, parse

    # The box keeps math-verify from guessing where the answer is. No time-out, because that sets an alarm.
    return parse(f"$\\boxed{{{text}}}$", extraction_config=[LatexExtractionConfig()], parsing_timeout=None)


def _verify(gold: str, answer: str) -> bool:
    from math_verify import verify

    parsed_gold, parsed_answer = _parse(gold), _parse(answer)
    if not parsed_gold or not parsed_answer:
        return False
    return verify(
        parsed_gold, parsed_answer, timeout_seconds=None, allow_set_relation_comp=True
    ) or _same_complex_number(parsed_gold[0], parsed_answer[0])


def _same_complex_number(gold: Any, answer: Any) -> bool:
    """Equality of two constants whose only letter is i, the imaginary unit, which the parser reads as a variable.

    It is relative to their size: two numbers are not equal just because both are tiny.
    """
    import sympy

    if not isinstance(gold, sympy.Expr) or not isinstance(answer, sympy.Expr):
        return False
    letters = gold.free_symbols | answer.free_symbols
    if {str(letter) for letter in letters} != {"i"}:
        return False
    unit = dict.fromkeys(letters, sympy.I)
    values = [sympy.N(_exact(one).subs(unit), _DIGITS) for one in (gold, answer)]
    if not all(value.is_number and value.is_finite for value in values):
        return False
    size = max(sympy.Abs(value) for value in values)
    return bool(sympy.Abs(values[0] - values[1]) <= size * sympy.Rational(1, 2**_SURE_BITS))


def _exact(constant: Any) -> Any:
    """With fractions in place of decimals."""
    import sympy

    return constant.replace(lambda part: part.is_Float, lambda part: sympy.Rational(str(part)))


def _increasing(text: str) -> str:
    """A chain of `>` written with `<`: 3>x>1 becomes 1<x<3."""
    text = re.sub(r"\\(?:geq?slant|geq?|ge)(?![a-zA-Z])", "≥", text)
    text = re.sub(r"\\gt(?![a-zA-Z])", ">", text)
    if len(re.findall(r"[>≥]", text)) != 2 or re.search(r"<|\\l", text):
        return text.replace("≥", "\\ge ")
    first, low, middle, right, last = re.split(r"([>≥])", text)
    mirrored = {">": "<", "≥": "\\le "}
    return f"{last}{mirrored[right]}{middle}{mirrored[low]}{first}"


def _degrees(text: str) -> str:
    """Degrees inside a trigonometric function as radians."""
    if not re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", text):
        return text
    return re.sub(r"(\d+(?:\.\d+)?)\s*\^\s*\{?\\circ\}?", r"(\1 \\cdot \\pi/180)", text)


def _sides(text: str) -> list[str]:
    """The sides of a chain of equalities, without those in braces, such as the index of a sum."""
    sides, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth == 0 and _EQUALS.match(text, position):
            sides.append(text[start:position].strip())
            start = position + 1
    return [*sides, text[start:].strip()]


def _equal(gold: str, answer: str) -> bool:
    decision = decide(answer, gold)
    if decision is not None:
        return decision
    if number(gold) is not None and answer.startswith("\\{") and "," in answer:
        return False
    if gold[:1] in "([" and answer.startswith("\\{"):
        return False  # a set is not an interval or a tuple
    gold, answer = _degrees(_increasing(gold)), _degrees(_increasing(answer))
    decision = same_constant(gold, answer)
    if decision is None:
        decision = same_polynomial(gold, answer)
    if decision is not None:
        return decision
    symbols = _distinct_symbols(gold, answer)
    return symbols is not None and _verify(*symbols)


def is_equal(gold: str, answer: str) -> bool:
    """Whether a cleaned answer equals a cleaned gold."""
    gold = _CLOSED_INFINITY.sub(_opened, gold)
    if _CLOSED_INFINITY.search(answer) or (_PRIMED_NUMBER.search(answer) and not _PRIMED_NUMBER.search(gold)):
        return False
    for rule in (same_range(gold, answer), same_list(gold, answer, is_equal)):
        if rule is not None:
            return rule
    gold_sides, sides = _sides(_name_first(gold)), _sides(_name_first(answer))
    is_list = "," in answer or re.search(r"(?<![a-zA-Z])(?:or|and)(?![a-zA-Z])", answer) is not None
    if len(sides) > 1 and not is_list and (len(gold_sides) == 1 or len(sides) > 2):
        # All sides without letters must equal the gold: 0=5 is not 5. An ellipsis has no value that could.
        constants = [side for side in sides[:-1] if not _LETTER_OR_DOTS.search(side)]
        return all(side and _equal(gold_sides[-1], side) for side in [*constants, sides[-1]])
    if len(gold_sides) == 2 and len(sides) == 1 and _NAME.fullmatch(gold_sides[0]):
        return _equal(gold_sides[1], answer)
    return _equal(gold, answer)


def _opened(match: re.Match[str]) -> str:
    return match[0].replace("[", "(").replace("]", ")")


def _name_first(text: str) -> str:
    """`x=3` for `3=x`."""
    sides = _sides(text)
    is_swapped = len(sides) == 2 and _NAME.fullmatch(sides[1]) and not _NAME.fullmatch(sides[0])
    return f"{sides[1]}={sides[0]}" if is_swapped else text


def main() -> None:
    """Serve until stdin ends."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the start: loading takes seconds
    _verify("\\sin(x)", "\\cos(x)")  # loads the libraries before the first question, which has only seconds
    serve_verifier(is_equal, int(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()
