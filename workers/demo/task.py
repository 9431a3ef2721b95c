"""The demo's task: problems whose rule of order each agent half knows. Standard library only.

Each skill has a right procedure and a misconception (left to right, addition first, brackets ignored), both written
out in two steps. Problems on which both give the same answer are left out, so an answer tells which rule was used.
"""

from __future__ import annotations

import hashlib
import json
import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workers.contract.demo_recipe import HELD_OUT_FILE, SKILLS, TRAIN_FILE

HELD_OUT_PER_SKILL = 100
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@dataclass(frozen=True)
class ArithmeticProblem:
    """A problem with its right and its mistaken working; the text ends with `=`, and the working goes on from there."""

    skill: str
    text: str
    answer: int
    right: str
    mistaken: str


def _working(first: tuple[int, str, int], symbol: str, other: int, *, first_is_left: bool) -> tuple[str, int]:
    """`2*7=14;3+14=\\boxed{17}`: a first operation, then its result with the number that is left."""
    middle = _OPERATIONS[first[1]](first[0], first[2])
    low, right = (middle, other) if first_is_left else (other, middle)
    result = _OPERATIONS[symbol](low, right)
    return f"{first[0]}{first[1]}{first[2]}={middle};{low}{symbol}{right}=\\boxed{{{result}}}", result


def _problem(skill: str, a: int, b: int, c: int) -> ArithmeticProblem:
    form = SKILLS[skill]
    first_symbol, second_symbol = [symbol for symbol in form if symbol in _OPERATIONS]
    on_left = _working((a, first_symbol, b), second_symbol, c, first_is_left=True)
    on_right = _working((b, second_symbol, c), first_symbol, a, first_is_left=False)
    is_left_first = form in ("a-b+c", "(a-b)*c")
    right, mistaken = (on_left, on_right) if is_left_first else (on_right, on_left)
    text = form.replace("a", str(a)).replace("b", str(b)).replace("c", str(c)) + "="
    # A problem on which both rules agree has no mistaken working.
    return ArithmeticProblem(skill, text, right[1], right[0], mistaken[0] if right[1] != mistaken[1] else "")


def _numbers(form: str) -> Iterator[tuple[int, int, int]]:
    """Numbers that keep every right step from 0 to 162, and each skill above 500 problems."""
    for a in range(1, 15):
        for b in range(1, 10):
            for c in range(1, 10):
                is_allowed = {
                    "a+b*c": min(b, c) > 1,
                    "a-b+c": a > b,
                    "a*(b+c)": 1 < a < 10,
                    "(a-b)*c": a > b and c > 1,
                }[form]
                if is_allowed:
                    yield a, b, c


def make_problems(seed: int) -> tuple[list[ArithmeticProblem], list[ArithmeticProblem]]:
    """Training and held-out problems: 100 of each skill are held out."""
    train: list[ArithmeticProblem] = []
    held_out: list[ArithmeticProblem] = []
    for skill, form in SKILLS.items():
        problems = [_problem(skill, *numbers) for numbers in _numbers(form)]
        problems = [problem for problem in problems if problem.mistaken]
        random.Random(f"{seed} {skill}").shuffle(problems)
        held_out += problems[:HELD_OUT_PER_SKILL]
        train += problems[HELD_OUT_PER_SKILL:]
    return train, held_out


def write_questions(folder: Path, train: list[ArithmeticProblem], held_out: list[ArithmeticProblem]) -> None:
    """The two benchmark files, one question a line; `subject` is the skill."""
    for name, problems in ((TRAIN_FILE, train), (HELD_OUT_FILE, held_out)):
        lines = [
            json.dumps(
                {
                    "id": f"{problem.skill}/{hashlib.sha256(problem.text.encode()).hexdigest()[:8]}",
                    "question": problem.text,
                    "answer": str(problem.answer),
                    "subject": problem.skill,
                }
            )
            for problem in problems
        ]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
