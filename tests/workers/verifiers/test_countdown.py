"""Countdown: only an expression of the given numbers that reaches the target is correct. Further examples: the docs."""

from __future__ import annotations

import time

import pytest

from workers.verifiers.short_answers.countdown import countdown_verdict, read_task

GOLD = "3 5 7 = 36"


@pytest.mark.parametrize(
    "answer",
    [
        "__import__('os').system('x')", "3*(5+7).real", "(lambda:36)()", "3*(5+7)if 1else 0", "36#3*(5+7)",
        "3*(5+7)\n+0", "[3*(5+7)][0]", "3*(5+7);36", "3_6", "3*(5+7)+0", "3.0*(5+7)", "3*(5+7)*1", "9**9**9**9",
        "(" * 200 + "3*(5+7)" + ")" * 200, "3" * 5000, "36 = 36", "3*(5+7) = 36 = 36", "３*(5+7)", "3<<5", "-36", "",
        " ", "nan", "1e3", "0x24", "3*(5+7", "3*5+7)", "(3,5,7)", "3 5 7", "\\frac{3}{5}", "{3*(5+7)}", "03*(5+7)",
    ],
)  # fmt: skip
def test_hostile_and_odd_answers_get_no_reward(answer):
    assert countdown_verdict(f"\\boxed{{{answer}}}", GOLD).reward == 0.0


@pytest.mark.parametrize(
    "answer", ["3*(5+7)", "3 × (7 + 5)", "(5+7)·3", "3\\cdot(5+7)", "-3*(-5-7)", "\\left(5+7\\right)*3"]
)
def test_usual_spellings_of_a_correct_expression_are_rewarded(answer):
    assert countdown_verdict(f"<think>36</think> \\boxed{{{answer}}}", GOLD).reward == 1.0


def test_tasks_are_read_with_spaces_or_commas():
    assert read_task("1, 2,3 = -4") == read_task("1 2 3=-4") is not None
    assert read_task("= 4") is read_task("1 2") is read_task("1 2 = x") is None


def test_response_of_open_tags_alone_holds_the_trainer_up_for_no_time():
    begin = time.process_time()
    assert countdown_verdict("<answer>" * 12_500, GOLD).reward == 0.0
    assert time.process_time() - begin < 0.5  # 11 s where each tag looked for its end


def test_last_closed_tag_is_the_answer():
    texts = ("<answer>1</answer> <answer>3*(5+7)</answer> </answer> <answer>1", "</answer><answer>3*(5+7)</answer>")
    assert [countdown_verdict(text, GOLD).reward for text in texts] == [1.0, 1.0]
    assert countdown_verdict("<answer></answer>\n3*(5+7)", GOLD).reward == 0.0
