r"""How a response without a box and without a stated answer ends: its closing formula, or a list of them.

`Therefore, $x=5$ or $x=-2$.` ends in a list; `$n=4$, as required.` and `$n=4$. (We can check that it works.)` end in
`$n=4$`, because such remarks say nothing else. A closing formula of several lines concludes with the last of them.
Standard library only; every pattern looks at a bounded part of the response's end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workers.verifiers.mathematics.endings.remarks import sentence_before
from workers.verifiers.mathematics.endings.wording import (
    doubts,
    is_denied,
    is_tried,
    opens_range,
)
from workers.verifiers.mathematics.extraction import formula_at_end
from workers.verifiers.mathematics.plain_numbers import number
from workers.verifiers.mathematics.units import split_unit

MAX_FORMULAS = 12

_OPERATION = re.compile(r"[+*/]|\\(?:cdot|times|div)(?![a-zA-Z])|\d\s*-")
_NAME = re.compile(r"\s*([a-zA-Z](?:_\{?\w+\}?)?|\\[a-z]+)\s*(?:=|\\approx(?![a-zA-Z]))")
_WORDS = re.compile(r"\s+([a-zA-Z][a-zA-Z]*(?:\s[a-zA-Z]+){0,3})$")
# `Hence there are exactly $42$ such numbers`: what is counted, in a conclusion.
_COUNTED = re.compile(r"\**((?:\s+[a-zA-Z][a-zA-Z'-]*,?){1,14})(?:\s+\$[a-zA-Z_\\{}, ]{1,20}\$)?$")
_THERE_ARE = re.compile(
    r"\s*(?:(?:and\s+)?(?:so|hence|thus|therefore|consequently|in\s+total|altogether|in\s+conclusion|overall|finally)\b,?\s+)"
    r"(?:[a-z ]{0,40}\b)?(?:there\s+(?:are|is|exists?|were|will\s+be)|we\s+(?:have|get|obtain|find|count)"
    r"|(?:he|she|it|they)\s+(?:has|have|needs?|gets?)|a\s+total\s+of)\s+(?:(?:exactly|only|precisely|just|a\s+total\s+of|in\s+total)\s+)?\**$",
    re.IGNORECASE,
)
# `Therefore it costs at least $42$ cents`: a question for the least amount is answered.
_BOUND = re.compile(r"\bat\s+(?:least|most)\s*$", re.IGNORECASE)
_CONCLUSION = re.compile(r"\b(?:so|hence|thus|therefore|consequently)\b", re.IGNORECASE)
# Behind a number, these words make it another one, or none.
_CHANGING = re.compile(
    r"\b(?:hundred|thousand|million|billion|trillion|dozens?|scores?|percent|per\s+cent|times|squared|cubed|factorial|halves"
    r"|half|thirds?|quarters?|plus|minus|and|or|but|if|when|more|fewer|less|extra|additional|too|left|remaining|modulo|mod"
    r"|each|first|second|third|cases?|parts?|steps?|to\s+(?:the|check|consider|try|examine|test)|candidates?|over|out|short|th|st|nd|rd|degrees?)\b",
    re.IGNORECASE,
)

_ROWS = re.compile(
    r"\\begin\s*\{(aligned|alignedat|align\*?|gathered|gather\*?|split|eqnarray\*?)\}(.*)\\end\s*\{\1\}", re.DOTALL
)
_ARROW = re.compile(
    r"\\(?:Rightarrow|Longrightarrow|implies|Leftrightarrow|Longleftrightarrow|iff|therefore)(?![a-zA-Z])"
)
_ROW_REMARK = re.compile(
    r"\\tag\s*\{[^{}]*\}|\\q?quad\s*(?:\\text\s*\{|\().*$|\\text\s*\{\s*[.,]?\s*\}\s*$"
    r"|[.,]?(?:\s|\\q?quad(?![a-zA-Z])|\\[,;])*\\(?:blacksquare|square|qed)\s*$",
    re.DOTALL,
)
_CONDITION = re.compile(r"\b(?:with|when|for|if|using|since|because|as|in\s+case|taking)\s*$", re.IGNORECASE)
_EQUALITY = re.compile(r"(?<![<>!])=")
_JOINT = re.compile(r"(?:\s*[,;]\s*|\s*,?\s+(?:and|or)\s+)$|\s*(?:\\text\s*\{)?\s*,?\s*(?:and|or)\s*\}?\s*$")
_COMMA = re.compile(r"\s*[,;]\s*$")
_POINT = re.compile(
    r"^\s*(?:\\left)?\(\s*[a-zA-Z](?:_\{?\w+\}?)?(?:\s*,\s*[a-zA-Z](?:_\{?\w+\}?)?)+\s*(?:\\right)?\)\s*=\s*(?=(?:\\left)?\()"
)


def closing_answer(text: str) -> str | None:
    """The conclusion of the formula at the end, with the unit behind it; several values of one name are a list. None
    if it ends without one, denies it, or enumerates numbers.

    text: without remarks.
    """
    ending = formula_at_end(text)
    if ending is None:
        return _with_words(text)
    if not any(letter.isdigit() for letter in ending[0]) and (counted := _counted(text)) is not None:
        return counted  # the formula only names what is counted: values of $n$
    formula, before = ending[0], ending[1].rstrip("* ")
    formulas, before_all = _formulas(text)
    if is_denied(before) or is_tried(sentence_before(before)) or _is_enumerated(formula, before):
        return None
    if len(formulas) > 1:
        if is_denied(before_all):
            return None
        if _are_values(formulas) and not _is_working(formulas):
            return None if denies_list(before_all) else ", ".join(formulas)
    return _conclusion(formula, before)


def closing_list(text: str) -> str | None:
    """The formulas at the end with only commas, `and` or `or` between them, as a list; None for fewer than two.

    text: without remarks.
    """
    formulas, before = _formulas(text)
    return ", ".join(formulas) if len(formulas) > 1 and not denies_list(before) else None


def denies_list(before: str) -> bool:
    """Whether the sentence before a list denies its items, or gives a range by them."""
    return doubts(sentence_before(before)) or opens_range(before)


def _with_words(text: str) -> str | None:
    """The formula before the last words if they are a unit, or what a conclusion counts."""
    words = _WORDS.search(text[-80:])
    if words is not None and (ending := formula_at_end(text[: -len(words[0])].rstrip("*"))) is not None:
        amount, unit = split_unit(f"5\\text{{ {words[1]} }}")
        if amount == "5" or (not unit and "text" not in amount):
            before = ending[1].rstrip("* ")
            is_bound = _BOUND.search(before) is not None and _CONCLUSION.search(sentence_before(before)) is not None
            is_none = (is_denied(before) and not is_bound) or is_tried(sentence_before(before))
            return None if is_none else f"{_conclusion(ending[0], before)}\\text{{ {words[1]} }}"
    return _counted(text)


def _counted(text: str) -> str | None:
    """The number of a conclusion that counts what its last words name: `Hence there are $42$ values of $n$`."""
    counted = _COUNTED.search(text[-200:])
    if counted is None or _CHANGING.search(counted[1]) or doubts(counted[1]):
        return None
    ending = formula_at_end(text[: -len(counted[0])])
    if ending is None or not _THERE_ARE.fullmatch(sentence_before(ending[1])):
        return None
    return _conclusion(*ending)


def _are_values(formulas: Sequence[str]) -> bool:
    """Whether formulas are different values of one name, or different numbers without one: none is the answer alone."""
    names = {match[1] if (match := _NAME.match(formula)) else "" for formula in formulas}
    is_list = len(names) == 1 and (names != {""} or all(map(_is_number, formulas)))
    values = {number(formula.replace("\\dfrac", "\\frac")) for formula in formulas}
    return is_list and (None in values or len(values) > 1)  # $\frac{4}{10}$ or $\frac{2}{5}$ is one value


def _is_working(formulas: Sequence[str]) -> bool:
    """Whether different values are a working and its result: $40+2$, or $42$."""
    return not any(_NAME.match(formula) for formula in formulas) and any(map(_OPERATION.search, formulas[:-1]))


def _is_number(formula: str) -> bool:
    return any(letter.isdigit() for letter in formula) and not re.search(r"(?<![\\a-zA-Z])[a-zA-Z]|[=<>(]", formula)


def _is_enumerated(formula: str, before: str) -> bool:
    r"""Whether a number is only the last of several without a word between them: `$41$ $42$`, `41 \iff 42`."""
    previous = formula_at_end(before.rstrip())
    if previous is None and "\\" not in formula:
        return False
    parts = [previous[0]] if previous else []
    rows = _ROWS.search(formula)
    parts += _rows(rows[2]) if rows else _ARROW.split(formula)
    parts += [] if rows or len(parts) > 1 else [formula]
    values = [number(part.strip(" \t\r\n&~").rstrip(".")) for part in parts]
    return len(values) > 1 and None not in values and len(set(values)) > 1


def _formulas(text: str) -> tuple[list[str], str]:
    """The formulas at the end with only commas, `and` or `or` between them, in order, and the text before them."""
    formulas: list[str] = []
    is_comma, first = False, text
    while len(formulas) < MAX_FORMULAS and (ending := formula_at_end(text)) is not None:
        formula, before = ending[0], ending[1].rstrip("*")
        if formulas and is_comma and _CONDITION.search(before[-20:]):
            break  # In the case $n=3$, $x=1$
        formulas.append(_POINT.sub("", _conclusion(formula, before)))
        first = before
        joint = _JOINT.search(before[-40:])
        if joint is None:
            break
        text = (before[: -len(joint[0])] if joint[0] else before).rstrip("*")
        is_comma = _COMMA.fullmatch(joint[0]) is not None
    return formulas[::-1], first


def _rows(content: str) -> list[str]:
    """The rows of an aligned formula that are not empty."""
    return [row for row in re.split(r"\\\\(?:\s*\[[^\[\]]*\])?", content) if row.strip(" \t\r\n&")]


def _conclusion(formula: str, before: str) -> str:
    r"""What a formula ends with: the last row of several, what follows its last \Rightarrow, without a condition."""
    if match := _ROWS.search(formula):
        rows = _rows(match[2])
        formula = rows[-1].replace("&", " ") if rows else formula
    formula = _ROW_REMARK.sub("", formula)
    formula = _ARROW.split(formula)[-1].strip(" \t\r\n~").rstrip(" \t\r\n.~")
    if _CONDITION.search(before[-20:]):
        comma = _first_comma(formula)
        first, second = formula[:comma], formula[comma + 1 :]
        if comma and _EQUALITY.search(first) and _EQUALITY.search(second) and _are_different(first, second):
            return second.strip()
    return formula


def _are_different(condition: str, conclusion: str) -> bool:
    """Whether two equalities are of different things, each of which may have a name."""
    names = [match[1] if (match := _NAME.match(side)) else side.partition("=")[0] for side in (condition, conclusion)]
    return names[0].strip() != names[1].strip() and number(names[1].strip()) is None


def _first_comma(formula: str) -> int:
    """The place of the first comma that is in no bracket, 0 if there is none."""
    depth = 0
    for place, letter in enumerate(formula):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0 and formula[max(0, place - 1)] != "\\":
            return place
    return 0
