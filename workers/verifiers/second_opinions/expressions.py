"""The second opinion on Countdown: an operator-precedence parser and whole numbers, where the first verifier has
Python's parser and fractions."""

from __future__ import annotations

from collections.abc import Iterator

from workers.verifiers.second_opinions.plain_answers import plain_answer

MAX_CHARACTERS = 200
_PLAIN = set("0123456789+-*/()= ")
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "negative": 3}
_Value = tuple[int, int]  # numerator and denominator


class _NoExpression(ValueError):
    """A text that is no expression, or divides by zero."""


def countdown_opinion(gold: str, response: str) -> bool | None:
    """Whether the expression uses each number of `NUMBERS = TARGET` once and reaches the target; None if unclear."""
    task, equals, goal = gold.partition("=")
    operands, target = task.replace(",", " ").split(), goal.strip()
    texts = [*operands, target.removeprefix("-")]
    if not equals or not operands or not all(one.isascii() and one.isdigit() for one in texts):
        return None
    answer = plain_answer(response)
    if answer is None:
        return None
    if "<answer>" not in response and "\\boxed" not in response:
        answer = answer.rpartition("\n")[2].strip()
    if not any(letter.isdigit() for letter in answer):
        return False
    if not set(answer) <= _PLAIN or len(answer) > MAX_CHARACTERS:
        return None
    expression, equals, result = answer.partition("=")
    if equals and result.strip() != str(int(target)):
        return None if result.strip().lstrip("-").isdigit() and int(result) == int(target) else False
    parts = list(_parts(expression))
    numbers = [part for part in parts if part.isdigit()]
    if any(len(number) > 1 and number.startswith("0") for number in numbers):
        return None
    try:
        top, bottom = _value(parts)
    except _NoExpression:
        return False
    return sorted(map(int, numbers)) == sorted(map(int, operands)) and top == int(target) * bottom


def _parts(text: str) -> Iterator[str]:
    number = ""
    for letter in text + " ":
        if letter.isdigit():
            number += letter
            continue
        if number:
            yield number
        number = ""
        if letter != " ":
            yield letter


def _value(parts: list[str]) -> _Value:
    """By two stacks. Error: _NoExpression."""
    values: list[_Value] = []
    signs: list[str] = []
    wants_value = True
    for part in parts:
        if part.isdigit() or part == "(":
            if not wants_value:
                raise _NoExpression
            signs += [part] if part == "(" else []
            values += [(int(part), 1)] if part != "(" else []
            wants_value = part == "("
        elif wants_value:  # only the sign of a number can stand here
            if part not in "+-":
                raise _NoExpression
            signs += ["negative"] if part == "-" else []
        elif part == ")":
            while signs and signs[-1] != "(":
                _apply(signs.pop(), values)
            if not signs:
                raise _NoExpression
            signs.pop()
        elif part in _PRECEDENCE:
            while signs and signs[-1] != "(" and _PRECEDENCE[signs[-1]] >= _PRECEDENCE[part]:
                _apply(signs.pop(), values)
            signs.append(part)
            wants_value = True
        else:
            raise _NoExpression
    if wants_value or "(" in signs:
        raise _NoExpression
    while signs:
        _apply(signs.pop(), values)
    return values[0]


def _apply(sign: str, values: list[_Value]) -> None:
    """Replace the last values by their result. Error: _NoExpression."""
    c, d = values.pop()
    if sign == "negative":
        values.append((-c, d))
        return
    a, b = values.pop()
    if sign == "/" and c == 0:
        raise _NoExpression
    results = {"+": (a * d + c * b, b * d), "-": (a * d - c * b, b * d), "*": (a * c, b * d), "/": (a * d, b * c)}
    values.append(results[sign])
