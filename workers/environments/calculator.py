"""A calculator: it computes the expression of a call exactly, and answers in words where it cannot.

A call is `<calculator>2*(3+4)</calculator>`, or `<tool_call>{"name": "calculator", "arguments": {"expression":
"2*(3+4)"}}</tool_call>`, as many models are trained to write it. Expressions have numbers, + - * / ^ ** and brackets.
"""

from __future__ import annotations

import json
from fractions import Fraction

from workers.environments.base import Environment, Episode, Observation
from workers.questions.dataset import Question
from workers.verifiers.short_answers.arithmetic import BadExpression, calculate

OPENING, CLOSING = "<calculator>", "</calculator>"
JSON_OPENING, JSON_CLOSING = "<tool_call>", "</tool_call>"
MAX_CALL = 2000
DIGITS = 12  # of a result that is no short decimal


def written(value: Fraction) -> str:
    """A whole number or a short decimal exactly, else to 12 significant digits."""
    if value.denominator == 1:
        return str(value.numerator)
    for digits in range(1, DIGITS + 1):
        if 10**digits % value.denominator == 0:
            text = str(abs(value.numerator) * 10**digits // value.denominator).rjust(digits + 1, "0")
            return f"{'-' * (value < 0)}{text[:-digits]}.{text[-digits:]}"
    return f"{float(value):.{DIGITS}g}"


def expression_of(text: str) -> str | None:
    """The expression that a turn's last call asks for; None if the turn has no call. Error: BadExpression."""
    plain, as_json = text.rfind(OPENING), text.rfind(JSON_OPENING)
    if max(plain, as_json) < 0:
        return None
    if plain > as_json:
        return text[plain + len(OPENING) :].partition(CLOSING)[0]
    call = text[as_json + len(JSON_OPENING) :].partition(JSON_CLOSING)[0]
    if len(call) > MAX_CALL:
        raise BadExpression(f"the call is longer than {MAX_CALL} characters")
    try:
        values = json.loads(call)
        name, arguments = values["name"], values["arguments"]
        expression = arguments["expression"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadExpression('a call is {"name": "calculator", "arguments": {"expression": "2+3"}}') from None
    if name != "calculator" or not isinstance(expression, str):
        raise BadExpression("the only tool is calculator, and its expression is a text")
    return expression


class _CalculatorEpisode(Episode):
    async def step(self, text: str) -> Observation | None:
        try:
            expression = expression_of(text)
            return None if expression is None else Observation(written(calculate(expression)))
        except BadExpression as error:
            return Observation(f"error: {error}", is_failed=True)


class Calculator(Environment):
    """A turn with a call is answered; a turn without one is the final answer."""

    stop = (CLOSING, JSON_CLOSING)
    instructions = (
        f"You can use a calculator. Write {OPENING}2*(3+4){CLOSING} and stop: you then read the result, and go on. "
        "When you know the answer, write it without a call."
    )

    def reset(self, question: Question) -> Episode:
        return _CalculatorEpisode()
