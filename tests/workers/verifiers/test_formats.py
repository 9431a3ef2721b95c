"""Rewards for a response's form."""

from __future__ import annotations

import pytest

from workers.verifiers.formats import boxed_reward, length_reward, tags_reward


@pytest.mark.parametrize(
    ("response", "reward"),
    [(r"so \boxed{4}", 1), (r"\boxed{}", 0), (r"\boxed{4", 0), ("4", 0), (r"\boxed{4} \boxed{5", 0), ("$4$", 0)],
)
def test_box_is_closed_and_not_empty(response, reward):
    assert boxed_reward(response) == reward


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("<think>a</think><answer>4</answer>", 1),
        (" <think>a\n</think>\n\n<answer>4</answer>\n", 1),
        ("<answer>4</answer><think>a</think>", 0),
        ("<think>a</think><answer>4</answer> done", 0),
        ("so <think>a</think><answer>4</answer>", 0),
        ("<think>a</think><answer></answer>", 0),
        ("<think>a<answer></think>4</answer>", 0),
        ("<think>a</think><think>b</think><answer>4</answer>", 0),
        ("4", 0),
    ],
)
def test_tags_are_all_there_once_and_in_order(response, reward):
    assert tags_reward(response, ("think", "answer")) == reward


def test_length_reward_falls_linearly_to_the_limit():
    assert [length_reward(tokens, 4, 8) for tokens in (1, 4, 5, 6, 8)] == [1.0, 1.0, 0.75, 0.5, 0.0]
    assert [length_reward(tokens, 8, 8) for tokens in (8, 9)] == [1.0, 0.0]
