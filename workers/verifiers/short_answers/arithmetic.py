"""Exact values of arithmetic expressions, bounded in length and size of every number; they are never run as Python."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction

MAX_EXPRESSION = 200  # characters
MAX_BITS = 1000  # of a numerator or denominator
NO_ARITHMETIC = "it is not an arithmetic expression"
DIVISION_BY_ZERO = "division by zero"
_NUMBER = re.compile(r"[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+")
_ALLOWED = re.compile(r"[0-9. +*/^()-]*")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", ",": ""})


class BadExpression(ValueError):
    """An expression that has no value here; the text says why."""


def calculate(expression: str, most: int = MAX_EXPRESSION) -> Fraction:
    """The exact value of an expression. most: characters. Error: BadExpression."""
    if len(expression) > most:
        raise BadExpression(f"the expression is longer than {most} characters")
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
        raise BadExpression(DIVISION_BY_ZERO)
    return value / divisor


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise BadExpression("an exponent must be a whole number")
    if not base and exponent < 0:
        raise BadExpression(DIVISION_BY_ZERO)
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
