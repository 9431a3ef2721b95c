"""The demo's task: problems on the order of operations, whose rules each agent half knows. Standard library only.

Each skill has a correct procedure and a misconception (left to right, addition first, brackets ignored), both written
out in two steps. Problems where both give the same answer are left out, so an answer shows which rule was used.
"""

from __future__ import annotations

import hashlib
import json
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workers.contract.demo_recipe import HELD_OUT_FILE, SKILLS, TRAIN_FILE

HELD_OUT_PER_SKILL = 100
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class Problem(Protocol):
    """What a question file needs of a problem."""

    @property
    def skill(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def answer(self) -> int: ...


@dataclass(frozen=True)
class ArithmeticProblem:
    """A problem with its correct and its mistaken working; `text` ends with `=`, and a working continues it."""

    skill: str
    text: str
    answer: int
    correct: str
    mistaken: str


def _working(first: tuple[int, str, int], symbol: str, other: int, *, first_is_left: bool) -> tuple[str, int]:
    """`2*7=14;3+14=\\boxed{17}`: the first operation, then its result with the remaining number."""
    middle = _OPERATIONS[first[1]](first[0], first[2])
    a, b = (middle, other) if first_is_left else (other, middle)
    result = _OPERATIONS[symbol](a, b)
    return f"{first[0]}{first[1]}{first[2]}={middle};{a}{symbol}{b}=\\boxed{{{result}}}", result


def _problem(skill: str, a: int, b: int, c: int) -> ArithmeticProblem:
    form = SKILLS[skill]
    first_symbol, second_symbol = [symbol for symbol in form if symbol in _OPERATIONS]
    on_left = _working((a, first_symbol, b), second_symbol, c, first_is_left=True)
    on_right = _working((b, second_symbol, c), first_symbol, a, first_is_left=False)
    is_left_first = form in ("a-b+c", "(a-b)*c")
    correct, mistaken = (on_left, on_right) if is_left_first else (on_right, on_left)
    text = form.replace("a", str(a)).replace("b", str(b)).replace("c", str(c)) + "="
    # Where both rules agree, there is no mistaken working.
    return ArithmeticProblem(skill, text, correct[1], correct[0], mistaken[0] if correct[1] != mistaken[1] else "")


def _numbers(form: str) -> Iterator[tuple[int, int, int]]:
    """Numbers with which every correct step is from 0 to 162, and each skill has more than 500 problems."""
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
    """Training and held-out problems; 100 of each skill are held out."""
    train: list[ArithmeticProblem] = []
    held_out: list[ArithmeticProblem] = []
    for skill, form in SKILLS.items():
        problems = [_problem(skill, *numbers) for numbers in _numbers(form)]
        problems = [problem for problem in problems if problem.mistaken]
        random.Random(f"{seed} {skill}").shuffle(problems)
        held_out += problems[:HELD_OUT_PER_SKILL]
        train += problems[HELD_OUT_PER_SKILL:]
    return train, held_out


def write_questions(folder: Path, train: Sequence[Problem], held_out: Sequence[Problem]) -> None:
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
