"""A calculator: it computes the expression of a call exactly, and answers in words where it cannot.

A call is `<calculator>2*(3+4)</calculator>`, or `<tool_call>{"name": "calculator", "arguments": {"expression":
"2*(3+4)"}}</tool_call>`, as many models are trained to write it. Expressions have numbers, + - * / ^ ** and brackets;
they are parsed here, never evaluated as Python, and are bounded in length, depth and size of every number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction

from workers.environments.base import Environment, Episode, Observation
from workers.questions.dataset import Question

OPENING, CLOSING = "<calculator>", "</calculator>"
JSON_OPENING, JSON_CLOSING = "<tool_call>", "</tool_call>"
MAX_EXPRESSION = 200  # characters
MAX_CALL = 2000
MAX_DEPTH = 40  # of brackets, signs and powers within each other
MAX_BITS = 1000  # of a numerator or denominator
DIGITS = 12  # of a result that is no short decimal
_TOKEN = re.compile(r"\s*([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+|\*\*|[-+*/^()])")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", ",": ""})


class BadExpression(ValueError):
    """An expression that has no value here; the text is the tool's answer."""


def calculate(expression: str) -> Fraction:
    """The exact value of an expression. Error: BadExpression."""
    if len(expression) > MAX_EXPRESSION:
        raise BadExpression(f"the expression is longer than {MAX_EXPRESSION} characters")
    return _Parser(expression.translate(_SPELLINGS)).value()


class _Parser:
    """sum = product (+|- product)*; product = signed (*|/ signed)*; signed = -signed | atom (^ signed)?."""

    def __init__(self, expression: str) -> None:
        self._tokens = [*_tokens(expression)]
        self._place = self._depth = 0

    def value(self) -> Fraction:
        if not self._tokens:
            raise BadExpression("the expression is empty")
        value = self._sum()
        if self._next():
            raise BadExpression("it is not an arithmetic expression")
        return value

    def _next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self, *symbols: str) -> str:
        """The next token if it is one of the symbols, else nothing."""
        token = self._next()
        if token not in symbols:
            return ""
        self._place += 1
        return token

    def _sum(self) -> Fraction:
        value = self._product()
        while symbol := self._take("+", "-"):
            other = self._product()
            value = _bounded(value + other if symbol == "+" else value - other)
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while symbol := self._take("*", "/"):
            other = self._signed()
            if symbol == "/" and not other:
                raise BadExpression("division by zero")
            value = _bounded(value * other if symbol == "*" else value / other)
        return value

    def _signed(self) -> Fraction:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadExpression("the expression is too deep")
        if sign := self._take("-", "+"):
            value = self._signed() if sign == "+" else -self._signed()
        else:
            value = self._atom()
            if self._take("^", "**"):
                value = _power(value, self._signed())
        self._depth -= 1
        return value

    def _atom(self) -> Fraction:
        if self._take("("):
            value = self._sum()
            if not self._take(")"):
                raise BadExpression("a bracket is not closed")
            return value
        token = self._next()
        if token[:1] not in {*"0123456789."}:
            raise BadExpression("it is not an arithmetic expression")
        self._place += 1
        return _bounded(Fraction(token))


def _tokens(expression: str) -> Iterator[str]:
    place, expression = 0, expression.rstrip()
    while place < len(expression):
        match = _TOKEN.match(expression, place)
        if match is None:
            raise BadExpression("it is not an arithmetic expression")
        yield match[1]
        place = match.end()


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise BadExpression("the number is too large")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise BadExpression("an exponent must be a whole number")
    if not base and exponent < 0:
        raise BadExpression("division by zero")
    if base not in (0, 1, -1) and (_bits(base) - 1) * abs(exponent) > MAX_BITS:  # before it is computed
        raise BadExpression("the number is too large")
    power = int(exponent) if base not in (0, 1, -1) else int(exponent) % 2 + 2 * (exponent != 0)
    return _bounded(base**power)


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
