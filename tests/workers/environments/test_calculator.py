"""The calculator: exact values, answers that say what is wrong, and bounds that hold for any text."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest

from workers.environments.calculator import Calculator, expression_of, written
from workers.questions.dataset import Question
from workers.verifiers.short_answers.arithmetic import BadExpression, calculate


def answer(text: str) -> tuple[str, bool] | None:
    environment = Calculator()
    [observation] = environment.step_all([(environment.reset(Question("q", "?", "1")), text)])
    return None if observation is None else (observation.text, observation.is_failed)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("10-4-3", "3"),
        ("-2^2", "-4"),  # as in algebra: -(2^2)
        ("2^3^2", "512"),  # powers from the right
        ("2**-2", "0.25"),
        ("(-1)^999999", "-1"),
        ("0^0", "1"),
        ("7/8", "0.875"),
        ("-1/8", "-0.125"),
        ("1/3", "0.333333333333"),
        ("0.1+0.2", "0.3"),
        ("1,234 × 2 ÷ 4", "617"),
        (" 3 − 5 ", "-2"),
        ("007+.5+2.", "9.5"),
        ("-" * 100 + "(" * 40 + "1" + ")" * 40, "1"),
    ],
)
def test_value_is_exact(expression, value):
    assert written(calculate(expression)) == value


def test_value_is_a_fraction_until_it_is_written():
    assert calculate("1/3*3") == Fraction(1)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("1/0", "division by zero"),
        ("0^-1", "division by zero"),
        ("2+", "not an arithmetic"),
        ("2 3", "not an arithmetic"),
        ("(2+3", "not closed"),
        ("2)", "not an arithmetic"),
        ("__import__('os')", "not an arithmetic"),
        ("x+1", "not an arithmetic"),
        ("٣+1", "not an arithmetic"),
        ("2^0.5", "whole number"),
        ("9^9^9^9", "too large"),
        ("2^1001", "too large"),
        ("1" * 199, "199"),  # 661 bits: a value, not a failure
        ("1+" * 101 + "1", "longer than 200"),
        ("2^" * 50 + "9", "too large"),
        ("n+1", "not an arithmetic"),
        ("2(3)", "not an arithmetic"),
        ("7//2", "not an arithmetic"),
    ],
)
def test_expression_without_a_value_is_answered_in_words(expression, reason):
    text, is_failed = answer(f"<calculator>{expression}</calculator>")
    if reason == "199":
        assert (text, is_failed) == ("1" * 199, False)
    else:
        assert is_failed
        assert text.startswith("error: ")
        assert reason in text


def test_call_is_the_last_one_of_a_turn_in_either_form():
    assert answer("I add. <calculator>2+3</calculator>") == ("5", False)
    assert answer("<calculator>1</calculator> no: <calculator>2+3") == ("5", False)
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call>'
    assert answer(call) == ("42", False)
    assert answer("<calculator>1</calculator>" + call) == ("42", False)
    assert answer("The answer is \\boxed{5}") is None


@pytest.mark.parametrize(
    "call",
    [
        "6*7",
        "[]",
        '{"name": "python", "arguments": {"expression": "1"}}',
        '{"name": "calculator", "arguments": {"expression": 1}}',
        '{"name": "calculator", "arguments": "1"}',
        "[" * 1900,
        "[" * 2001,
    ],
)
def test_call_that_cannot_be_read_is_a_failed_answer(call):
    text, is_failed = answer(f"<tool_call>{call}</tool_call>")
    assert (text.startswith("error: "), is_failed) == (True, True)


def test_no_expression_takes_long():
    nines = "9" * 60
    hostile = [f"{nines}^16", "1/" + "/".join(["3"] * 90), f"({nines}/7)^5*{nines}", "2^999*2^999", "1.5^900"]
    begin = time.process_time()
    for expression in hostile * 20:
        answer(f"<calculator>{expression}</calculator>")
    assert time.process_time() - begin < 1


def test_expression_of_a_turn():
    assert expression_of("none") is None
    with pytest.raises(BadExpression, match="only tool"):
        expression_of('<tool_call>{"name": "other", "arguments": {"expression": "1"}}</tool_call>')
