r"""Lists of values: their order does not matter, their number does. `\pm` stands for both of its values.

`2,-2`, `\pm 2` and `x=2 \text{ or } x=-2` are one list; `3,3,3` is not 3. Runs in verifier children.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_ELEMENTS = 12

_OPENING, _CLOSING = "([{", ")]}"
_SEPARATOR = re.compile(r",|;| and | or ")
_NAMED = re.compile(r"((?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{?\w+\}?)?)\s*=\s*([^=]+)")
_CHAIN = re.compile(r"((?:[a-zA-Z]\s*=\s*){2,})([^=,;]+)")
_SIGN = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")
_SET = re.compile(r"\\\{(.*)\\\}")
_UNION_OF_SETS = re.compile(r"\\\}\s*\\cup\s*\\\{")
_TUPLE = re.compile(r"\(([^()]*)\)")
_CASES = re.compile(r"([^{}]*=)?\s*\\begin\s*\{cases\}(.*)\\end\s*\{cases\}", re.DOTALL)


def same_list(gold: str, answer: str, is_equal: Callable[[str, str], bool]) -> bool | None:
    """Whether two cleaned texts have the same elements; None if neither is a list, or one is not clearly one."""
    gold, answer = _UNION_OF_SETS.sub(", ", gold), _UNION_OF_SETS.sub(", ", answer)
    if (cases := _CASES.fullmatch(gold)) and (others := _CASES.fullmatch(answer)):
        return _same_cases(_rows(cases[2]), _rows(others[2]), is_equal)
    is_set = [_SET.fullmatch(text) is not None for text in (gold, answer)]
    golds, answers = elements(gold), elements(answer)
    if golds is not None and len(golds) > 1:
        answers = elements(_each_name(answer))
    if golds is None or answers is None or max(len(golds), len(answers)) > MAX_ELEMENTS:
        return None
    if not any(is_set):
        golds, answers = _as_tuples(golds, answers), _as_tuples(answers, golds)
    if (names := _names(golds)) and not any(_names(answers, is_any=True)):
        # The order of x=3, y=4 is that of its names, for a tuple as for a list.
        coordinates = elements(match[1]) if len(answers) == 1 and (match := _TUPLE.fullmatch(answer)) else answers
        if coordinates and len(coordinates) == len(names):
            return all(is_equal(one, other) for one, other in zip(_values(golds), coordinates, strict=True))
    if len(golds) == 1 and not is_set[0]:
        is_value = gold[:1] not in "([" and "\\begin" not in gold  # a point may be given by its coordinates
        return False if len(answers) > 1 and is_value else None
    if len(answers) == 1 and not is_set[1]:
        return None if is_set[0] or answer[:1] in "([" else False
    golds, answers = _without_names(golds, answers)
    if any(is_set):
        return all(any(is_equal(one, other) for other in answers) for one in golds) and all(
            any(is_equal(one, other) for one in golds) for other in answers
        )
    if len(golds) != len(answers):
        return False
    rest = list(answers)
    for one in golds:
        equal = next((other for other in rest if is_equal(one, other)), None)
        if equal is None:
            return False
        rest.remove(equal)
    return True


def _names(values: list[str], *, is_any: bool = False) -> list[str]:
    """The names of values that all have one of their own, or all names that there are; empty for others."""
    names = [match[1] for value in values if (match := _NAMED.fullmatch(value))]
    return names if is_any or (len(names) == len(values) == len(set(names)) > 1) else []


def _as_tuples(values: list[str], others: list[str]) -> list[str]:
    """`(5,2), (7,2)` for `p=5, q=2, p=7, q=2`, if the other side is a list of tuples."""
    names = _names(values, is_any=True)
    width = len(set(names))
    is_repeated = (
        len(names) == len(values) and 1 < width < len(names) and names == names[:width] * (len(names) // width)
    )
    if not is_repeated or not all(_TUPLE.fullmatch(other) for other in others):
        return values
    plain = _values(values)
    return [f"({','.join(plain[place : place + width])})" for place in range(0, len(plain), width)]


def _rows(text: str) -> list[tuple[str, str]]:
    """The value and the condition of each row of cases."""
    rows = []
    for row in re.split(r"\\\\(?:\s*\[[^\[\]]*\])?", text):
        if row.strip():
            value, _, condition = row.partition("&")
            rows.append((value.strip(" ,;"), condition.strip(" &.,;")))
    return rows


def _same_cases(
    golds: list[tuple[str, str]], answers: list[tuple[str, str]], is_equal: Callable[[str, str], bool]
) -> bool:
    """Whether the same values hold under the same conditions, in any order."""
    if not len(golds) == len(answers) <= MAX_ELEMENTS:
        return False
    rest = list(answers)
    for value, condition in golds:
        match = next(
            (one for one in rest if is_equal(value, one[0]) and _same_condition(condition, one[1], is_equal)), None
        )
        if match is None:
            return False
        rest.remove(match)
    return True


def _same_condition(gold: str, answer: str, is_equal: Callable[[str, str], bool]) -> bool:
    return re.sub(r"\s", "", gold) == re.sub(r"\s", "", answer) or (bool(gold and answer) and is_equal(gold, answer))


def _each_name(text: str) -> str:
    """`a=1, b=1` for `a=b=1`."""
    return _CHAIN.sub(lambda match: ", ".join(f"{name}={match[2]}" for name in match[1].rstrip("= ").split("=")), text)


def elements(text: str) -> list[str] | None:
    r"""The elements of a list or a set, with both values of each `\pm`; None if they are unclear."""
    if match := _SET.fullmatch(text):
        text = match[1]
    values: list[str] = []
    for part in _split(text):
        if not part:
            return None
        signs = _SIGN.findall(part)
        if len(signs) > 1:
            return None
        values += [_SIGN.sub(sign, part).strip() for sign in ("+", "-")] if signs else [part]
    return [re.sub(r"^\s*\+|(?<==)\s*\+", "", value).strip() for value in values]


def _split(text: str) -> list[str]:
    """The parts between separators that are in no bracket."""
    parts, depth, start, place = [], 0, 0, 0
    while place < len(text):
        letter = text[place]
        if letter == "\\" and text[place + 1 : place + 2] not in ("{", "}"):
            place += 2
            continue
        depth += (letter in _OPENING) - (letter in _CLOSING)
        match = _SEPARATOR.match(text, place) if depth <= 0 else None
        if match:
            parts.append(text[start:place].strip())
            start = place = match.end()
            if parts[-1] == "" and len(parts) > 1:  # `3, 5, and 7`
                parts.pop()
            continue
        place += 1
    return [*parts, text[start:].strip()]


def _without_names(golds: list[str], answers: list[str]) -> tuple[list[str], list[str]]:
    """Without `x=` before each element if it is the same name everywhere, or only one side has names."""
    names = [
        [match[1] if (match := _NAMED.fullmatch(value)) else "" for value in values] for values in (golds, answers)
    ]
    if all("" not in side and len(set(side)) > 1 for side in names):
        return golds, answers
    return _values(golds), _values(answers)


def _values(elements: list[str]) -> list[str]:
    return [match[2].strip() if (match := _NAMED.fullmatch(value)) else value for value in elements]
