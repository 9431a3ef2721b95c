"""A calculator: it computes the expression of a call exactly, and answers in words where it cannot.

A call is `<calculator>2*(3+4)</calculator>`, or `<tool_call>{"name": "calculator", "arguments": {"expression":
"2*(3+4)"}}</tool_call>`, as many models are trained to write it. Expressions have numbers, + - * / ^ ** and brackets;
they are parsed here, never evaluated as Python, and are bounded in length and size of every number.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction

from workers.environments.base import Environment, Episode, Observation
from workers.questions.dataset import Question

OPENING, CLOSING = "<calculator>", "</calculator>"
JSON_OPENING, JSON_CLOSING = "<tool_call>", "</tool_call>"
MAX_EXPRESSION = 200  # characters
MAX_CALL = 2000
MAX_BITS = 1000  # of a numerator or denominator
DIGITS = 12  # of a result that is no short decimal
NO_ARITHMETIC = "it is not an arithmetic expression"
_NUMBER = re.compile(r"[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+")
_ALLOWED = re.compile(r"[0-9. +*/^()-]*")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", ",": ""})


class BadExpression(ValueError):
    """An expression that has no value here; the text is the tool's answer."""


def calculate(expression: str) -> Fraction:
    """The exact value of an expression. Error: BadExpression."""
    if len(expression) > MAX_EXPRESSION:
        raise BadExpression(f"the expression is longer than {MAX_EXPRESSION} characters")
    expression = " ".join(expression.translate(_SPELLINGS).split())
    if not expression:
        raise BadExpression("the expression is empty")
    if not _ALLOWED.fullmatch(expression):
        raise BadExpression(NO_ARITHMETIC)
    numbers = [Fraction(number) for number in _NUMBER.findall(expression)]
    # Python's grammar has the same signs, powers and brackets. Each number becomes a name: Python knows no 007.
    names = _NUMBER.sub(" n ", expression.replace("^", "**")).strip()
    try:
        return _value(ast.parse(names, mode="eval").body, iter(numbers))
    except SyntaxError:
        is_open = names.count("(") > names.count(")")
        raise BadExpression("a bracket is not closed" if is_open else NO_ARITHMETIC) from None


def _value(node: ast.expr, numbers: Iterator[Fraction]) -> Fraction:
    """The value of a tree whose numbers come in its order. Error: BadExpression."""
    if isinstance(node, ast.Name):
        return _bounded(next(numbers))
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, numbers)
        return -value if isinstance(node.op, ast.USub) else value
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATIONS:
        raise BadExpression(NO_ARITHMETIC)
    left, right = _value(node.left, numbers), _value(node.right, numbers)
    return _bounded(_OPERATIONS[type(node.op)](left, right))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise BadExpression("the number is too large")
    return value


def _quotient(value: Fraction, divisor: Fraction) -> Fraction:
    if not divisor:
        raise BadExpression("division by zero")
    return value / divisor


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise BadExpression("an exponent must be a whole number")
    if not base and exponent < 0:
        raise BadExpression("division by zero")
    if base not in (0, 1, -1) and (_bits(base) - 1) * abs(exponent) > MAX_BITS:  # before it is computed
        raise BadExpression("the number is too large")
    return base ** (int(exponent) if base not in (0, 1, -1) else int(exponent) % 2 + 2 * (exponent != 0))


_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.Pow: _power,
}


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
