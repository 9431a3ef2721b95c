"""Countdown: an expression that reaches a number and uses each of the given numbers once, with + - * / and brackets.

The reference answer is `NUMBERS = TARGET`, such as `3 5 7 = 36`. The answer is the last box, else the content of the
last `<answer>`, else the last line; a part after `=` must be the target. Exact fractions decide; no process is needed.
"""

from __future__ import annotations

import re
from collections import Counter

from workers.verifiers.mathematics.extraction import final_answer
from workers.verifiers.scoring.verdicts import CORRECT, INCORRECT, NO_ANSWER, Verdict
from workers.verifiers.short_answers.arithmetic import DIVISION_BY_ZERO, BadExpression, calculate

MAX_CHARACTERS = 300
OTHER_NUMBERS = Verdict(0.0, "it does not use each number once")
NO_EXPRESSION = Verdict(0.0, "no expression of numbers, + - * / and brackets")
_GOLD = re.compile(r"\s*(\d{1,12}(?:[\s,]+\d{1,12}){0,11})\s*=\s*(-?\d{1,12})\s*", re.ASCII)
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "$": " "})
_COMMANDS = {r"\times": "*", r"\cdot": "*", r"\div": "/", r"\left": "", r"\right": ""}
_ALLOWED = re.compile(r"[\d\s+*/()-]+", re.ASCII)
_LEADING_ZERO = re.compile(r"(?<!\d)0+[1-9]", re.ASCII)


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
    if not _ALLOWED.fullmatch(expression) or "**" in expression or _LEADING_ZERO.search(expression):
        return NO_EXPRESSION
    try:
        value = calculate(expression, MAX_CHARACTERS)
    except BadExpression as error:
        return INCORRECT if str(error) == DIVISION_BY_ZERO else NO_EXPRESSION
    if Counter(map(int, re.findall(r"\d+", expression))) != numbers:
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


def countdown_question(numbers: list[str], target: str) -> tuple[str, str]:
    """The question and the reference answer of a row of numbers and target."""
    listed = ", ".join(numbers)
    question = (
        f"Using the numbers {listed}, write an expression that equals {target}. Use each number exactly once, with "
        "+, -, *, / and brackets."
    )
    return question, f"{' '.join(numbers)} = {target}"
