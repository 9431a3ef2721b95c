"""Grade-school word problems for pretrained models: six kinds, each with worked solutions. Standard library only.

A problem needs one or two operations on small numbers. Names, objects and wordings vary, so that a model has to read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

NAMES = ("Ada", "Ben", "Chloe", "Dan", "Emma", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kira", "Leo", "Mina", "Noah")
THINGS = ("apples", "books", "cards", "coins", "cookies", "eggs", "marbles", "pencils", "shells", "stamps", "stickers")
PLACES = ("bags", "baskets", "boxes", "drawers", "jars", "rows", "shelves", "trays")


@dataclass(frozen=True)
class ProblemKind:
    """A kind of problem. Its texts are formats of name, things, places, a, b, c, and the results x and answer."""

    wordings: tuple[str, ...]
    working: str


KINDS = {
    "more": ProblemKind(
        (
            "{name} has {a} {things} and gets {b} more. How many {things} does {name} have now?",
            "There are {a} {things} on a table. {name} puts {b} more {things} there. How many are on the table now?",
            "{name} finds {a} {things} on Monday and {b} on Tuesday. How many {things} is that in all?",
        ),
        "{a} + {b} = {answer}.",
    ),
    "fewer": ProblemKind(
        (
            "{name} has {a} {things} and gives away {b} of them. How many {things} are left?",
            "Of {a} {things}, {name} sells {b}. How many {things} remain?",
            "There were {a} {things} in a shop. {name} buys {b} of them. How many {things} does the shop still have?",
        ),
        "{a} - {b} = {answer}.",
    ),
    "groups": ProblemKind(
        (
            "{name} has {a} {places} with {b} {things} in each. How many {things} is that?",
            "Each of {a} {places} holds {b} {things}. How many {things} are there in all?",
            "{name} fills {a} {places}. Every one takes {b} {things}. How many {things} does {name} need?",
        ),
        "{a} * {b} = {answer}.",
    ),
    "equal shares": ProblemKind(
        (
            "{name} puts {a} {things} into {b} {places}, the same number in each. How many {things} are in each?",
            "{a} {things} are shared equally by {b} friends. How many {things} does each friend get?",
            "{name} has {a} {things} for {b} days and uses the same number every day. How many are used each day?",
        ),
        "{a} / {b} = {answer}.",
    ),
    "groups, then fewer": ProblemKind(
        (
            "{name} buys {a} {places} with {b} {things} in each and gives away {c} {things}. How many are left?",
            "Each of {a} {places} holds {b} {things}. {name} takes {c} {things} out. How many {things} remain?",
            "A shop has {a} {places} of {b} {things} each. It sells {c} of them. How many {things} does it still have?",
        ),
        "{a} * {b} = {x}. {x} - {c} = {answer}.",
    ),
    "more, then shares": ProblemKind(
        (
            "{name} has {a} {things} and gets {b} more. All are shared equally by {c} friends. How many does each get?",
            "{a} {things} and {b} more {things} go into {c} {places}, the same number in each. How many are in each?",
            "{name} makes {a} {things} in the morning and {b} later, and sells them all in {c} equal packs. "
            "How many are in a pack?",
        ),
        "{a} + {b} = {x}. {x} / {c} = {answer}.",
    ),
}
HELD_OUT_PER_KIND = 40
TRAIN_PER_KIND = 400


@dataclass(frozen=True)
class WordProblem:
    """A question with its answer and a worked solution that ends with `The answer is N.`"""

    skill: str
    text: str
    answer: int
    solution: str


def _numbers(kind: str, draw: random.Random) -> tuple[int, int, int, int, int]:
    """a, b, c, the intermediate x and the answer: whole and positive, at most 100."""
    if kind == "more":
        a, b = draw.randint(5, 60), draw.randint(3, 39)
        return a, b, 0, 0, a + b
    if kind == "fewer":
        answer, b = draw.randint(3, 60), draw.randint(3, 39)
        return answer + b, b, 0, 0, answer
    if kind == "groups":
        a, b = draw.randint(3, 9), draw.randint(3, 11)
        return a, b, 0, 0, a * b
    if kind == "equal shares":
        answer, b = draw.randint(2, 11), draw.randint(2, 9)
        return answer * b, b, 0, 0, answer
    if kind == "groups, then fewer":
        a, b = draw.randint(3, 9), draw.randint(3, 11)
        c = draw.randint(2, a * b - 1)
        return a, b, c, a * b, a * b - c
    answer, c = draw.randint(3, 11), draw.randint(2, 9)
    a = draw.randint(1, answer * c - 1)
    return a, answer * c - a, c, answer * c, answer


def _problem(kind: str, draw: random.Random) -> WordProblem:
    a, b, c, x, answer = _numbers(kind, draw)
    values = {
        "name": draw.choice(NAMES),
        "things": draw.choice(THINGS),
        "places": draw.choice(PLACES),
        "a": a,
        "b": b,
        "c": c,
        "x": x,
        "answer": answer,
    }
    wording = draw.choice(KINDS[kind].wordings)
    solution = f"{KINDS[kind].working} The answer is {{answer}}."
    return WordProblem(kind, wording.format(**values), answer, solution.format(**values))


def make_word_problems(seed: int) -> tuple[list[WordProblem], list[WordProblem]]:
    """Training and held-out problems of each kind, no question twice."""
    train: list[WordProblem] = []
    held_out: list[WordProblem] = []
    for kind in KINDS:
        draw = random.Random(f"{seed} {kind}")
        problems: dict[str, WordProblem] = {}
        while len(problems) < HELD_OUT_PER_KIND + TRAIN_PER_KIND:
            problem = _problem(kind, draw)
            problems[problem.text] = problem
        own = list(problems.values())
        held_out += own[:HELD_OUT_PER_KIND]
        train += own[HELD_OUT_PER_KIND:]
    return train, held_out
