"""Our rules beside other code, on random samples: their rewards are equal.

The other code shares nothing with ours: Python's own arithmetic for countdown and numbers, the jsonschema package for
schemas, a line of Python for an instruction. The table of the longest common subsequence is in test_graded.
"""

from __future__ import annotations

import json
import random
from fractions import Fraction

import pytest

from workers.verifiers.scoring.kinds import kind_of
from workers.verifiers.scoring.verdicts import Verdict

WORDS = ("the", "a", "Battle", "of", "Hastings,", "well-known", "x_y", "don't", "(1066)", "and", "...")
INSTRUCTIONS = {
    "punctuation:no_comma": ({}, lambda text: "," not in text),
    "keywords:existence": ({"keywords": ["battle"]}, lambda text: "battle" in text.lower()),
    "keywords:letter_frequency": (
        {"letter": "t", "let_frequency": 3, "let_relation": "less than"},
        lambda text: text.lower().count("t") < 3,
    ),
    "length_constraints:number_paragraphs": ({"num_paragraphs": 2}, lambda text: text.count("***") == 1),
    "startend:quotation": ({}, lambda text: len(text) > 1 and text[0] == text[-1] == '"'),
}


def reward_of(kind: str, gold: str, response: str) -> float | None:
    verdict = kind_of(kind, 1e-4).quick_verdict(response, gold)  # type: ignore[arg-type]
    assert isinstance(verdict, Verdict)
    return verdict.reward


def expression(draw: random.Random, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return draw.choice(("{}", "({})", "{}")).format(numbers[0])
    at = draw.randrange(1, len(numbers))
    left, right = expression(draw, numbers[:at]), expression(draw, numbers[at:])
    return draw.choice(("({}{}{})", "{}{}{}", "{} {} {}")).format(left, draw.choice("+-*/"), right)


def test_countdown_equals_pythons_arithmetic():
    draw, rewards = random.Random(0), []
    for _ in range(500):
        numbers = [draw.randrange(1, 10) for _ in range(draw.randrange(1, 5))]
        text = expression(draw, numbers)
        exact = "".join(f"Fraction({letter})" if letter.isdigit() else letter for letter in text)
        try:
            value = eval(exact)
        except ZeroDivisionError:
            value = Fraction(1, 2)
        target = int(value) if value.denominator == 1 and draw.random() < 0.8 else draw.randrange(30)
        used = numbers if draw.random() < 0.8 else [*numbers, 3]
        rewards.append(reward_of("countdown", f"{' '.join(map(str, used))} = {target}", f"\\boxed{{{text}}}"))
        assert rewards[-1] == float(value == target and used == numbers), (text, used, target)
    assert {0.0, 1.0} == {*rewards}


@pytest.mark.parametrize("kind", ["math", "numeric"])
def test_plain_numbers_equal_pythons_fractions(kind):
    draw, rewards = random.Random(0), []

    def number() -> tuple[str, Fraction]:
        top, bottom = draw.randrange(-9, 10), draw.choice((1, 2, 4, 5))
        value = Fraction(top, bottom)
        sign, size = "-" * (value < 0), abs(value)
        texts = [f"{top}/{bottom}", f"{sign}\\frac{{{size.numerator}}}{{{size.denominator}}}", str(float(value))]
        return draw.choice(texts), value

    for _ in range(500):
        (gold, expected), (answer, value) = number(), number()
        rewards.append(reward_of(kind, gold, f"so it is $\\boxed{{{answer}}}$."))
        assert rewards[-1] == float(expected == value), (gold, answer)
    assert {0.0, 1.0} == {*rewards}


def test_f1_of_words_equals_that_of_sorted_lists():
    draw = random.Random(0)
    for _ in range(300):
        gold, answer = (" ".join(draw.choices(WORDS, k=draw.randrange(2, 9))) for _ in range(2))
        lists = []
        for text in (gold, answer):
            plain = "".join(" " if letter in "-_" else letter for letter in text.lower() if letter not in ",'().")
            lists.append(sorted(word for word in plain.split() if word not in ("a", "an", "the")))
        left = lists[1].copy()
        common = sum(word in left and not left.remove(word) for word in lists[0])
        total = len(lists[0]) + len(lists[1])
        if lists[0]:  # else the reference answer is empty
            assert reward_of("words", gold, answer) == pytest.approx(2 * common / total, abs=1e-6), (gold, answer)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions_are_checked_as_a_line_of_python_checks_them(name):
    draw, rewards = random.Random(0), set()
    options, is_followed = INSTRUCTIONS[name]
    for _ in range(100):
        text = " ".join(draw.choices([*WORDS, "***"], k=draw.randrange(1, 9)))
        text = draw.choice(("{}", '"{}"', "{} battle")).format(f"start {text} end")
        rewards.add(reward_of("instructions", json.dumps([[name, options]]), text))
        assert reward_of("instructions", json.dumps([[name, options]]), text) == float(is_followed(text)), text
    assert rewards == {0.0, 1.0}
