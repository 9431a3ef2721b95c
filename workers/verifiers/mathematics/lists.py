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


def same_list(gold: str, answer: str, is_equal: Callable[[str, str], bool]) -> bool | None:
    """Whether two cleaned texts have the same elements; None if neither is a list, or one is not clearly one."""
    is_set = [_SET.fullmatch(text) is not None for text in (gold, answer)]
    golds, answers = elements(gold), elements(answer)
    if golds is not None and len(golds) > 1:
        answers = elements(_each_name(answer))
    if golds is None or answers is None or max(len(golds), len(answers)) > MAX_ELEMENTS:
        return None
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
        match = next((other for other in rest if is_equal(one, other)), None)
        if match is None:
            return False
        rest.remove(match)
    return True


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
