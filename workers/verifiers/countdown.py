"""Countdown: an expression that reaches a number and uses each of the given numbers once, with + - * / and brackets.

The reference answer is `NUMBERS = TARGET`, such as `3 5 7 = 36`. The answer is the last box, else the content of the
last `<answer>`, else the last line; a part after `=` must be the target. Exact fractions decide; no process is needed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

from workers.verifiers.mathematics.extraction import final_answer
from workers.verifiers.verdicts import CORRECT, INCORRECT, NO_ANSWER, Verdict

MAX_CHARACTERS = 300
MAX_NUMBERS = 12
MAX_DIGITS = 12
OTHER_NUMBERS = Verdict(0.0, "it does not use each number once")
NO_EXPRESSION = Verdict(0.0, "no expression of numbers, + - * / and brackets")
_GOLD = re.compile(r"\s*(\d{1,12}(?:[\s,]+\d{1,12}){0,11})\s*=\s*(-?\d{1,12})\s*", re.ASCII)
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "$": " "})
_COMMANDS = {r"\times": "*", r"\cdot": "*", r"\div": "/", r"\left": "", r"\right": ""}
_ALLOWED = re.compile(r"[\d\s+*/().-]+", re.ASCII)
_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def read_task(gold: str) -> tuple[Counter[int], int] | None:
    """The numbers and the target of a reference answer; None if it is none."""
    match = _GOLD.fullmatch(gold)
    if match is None:
        return None
    return Counter(int(one) for one in re.split(r"[\s,]+", match[1].strip())), int(match[2])


def countdown_verdict(completion: str, gold: str) -> Verdict:
    """Whether the response's expression uses each number once and reaches the target."""
    task = read_task(gold)
    if task is None:
        return Verdict(None, f"unscorable: {unclear_task(gold)}")
    numbers, target = task
    answer = _answer(completion)
    if answer is None:
        return NO_ANSWER
    expression, equals, right = answer.partition("=")
    if equals and right.strip() != str(target):
        return INCORRECT
    if len(expression) > MAX_CHARACTERS or not _ALLOWED.fullmatch(expression) or "**" in expression:
        return NO_EXPRESSION
    used: Counter[int] = Counter()
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body, used)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return NO_EXPRESSION
    except ZeroDivisionError:
        return INCORRECT
    if used != numbers:
        return OTHER_NUMBERS
    return CORRECT if value == target else INCORRECT


def unclear_task(gold: str) -> str:
    """Why no response can match; empty if one may."""
    return "" if read_task(gold) else "the reference answer is not NUMBERS = TARGET, such as 3 5 7 = 36"


def _answer(completion: str) -> str | None:
    """The expression as written, with the signs of Python; None if a box is not closed or there is nothing."""
    if "\\boxed" in completion or "\\fbox" in completion:
        text = final_answer(completion)
    else:
        lines = completion.strip().splitlines()
        tagged = _last_tagged(completion)
        text = tagged if tagged is not None else lines[-1] if lines else None
    if text is None or not text.strip():
        return None
    for command, sign in _COMMANDS.items():
        text = text.replace(command, sign)
    return text.translate(_SIGNS).strip()


def _last_tagged(completion: str) -> str | None:
    """The content of the last `<answer>` that is closed. In linear time: a response may open a thousand of them."""
    for piece in reversed(completion.split("</answer>")[:-1]):
        _, tag, content = piece.partition("<answer>")
        if tag:
            return content
    return None


def _value(node: ast.expr, used: Counter[int]) -> Fraction:
    """The value of a tree; its numbers are counted in `used`. Errors: ValueError, ZeroDivisionError."""
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 10**MAX_DIGITS:
        used[node.value] += 1
        if used.total() > MAX_NUMBERS:
            raise ValueError("more numbers than any task has")
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left, used), _value(node.right, used))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand, used)
        return -value if isinstance(node.op, ast.USub) else value
    raise ValueError("no expression of numbers")


def countdown_question(numbers: list[str], target: str) -> tuple[str, str]:
    """The question and the reference answer of a row of numbers and target."""
    listed = ", ".join(numbers)
    question = (
        f"Using the numbers {listed}, write an expression that equals {target}. Use each number exactly once, with "
        "+, -, *, / and brackets."
    )
    return question, f"{' '.join(numbers)} = {target}"
