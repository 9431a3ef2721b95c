"""Rewards for a response's form."""

from __future__ import annotations

import time

import pytest

from workers.contract.spec.rewards import LANGUAGES
from workers.verifiers.instructions.formats import boxed_reward, language_reward, length_reward, tags_reward


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


QUESTION = "How many hours does the train need from Paris to Lyon?"
ENGLISH = "The train leaves at nine and arrives at eleven, so it needs \\boxed{2} hours."
GERMAN = "Der Zug fährt um neun Uhr ab und kommt um elf Uhr an, also braucht er \\boxed{2} Stunden."
CHINESE = "火车九点出发，十一点到达，所以从巴黎到里昂需要两个小时。因此答案是两个小时，我们已经检查过了。"


@pytest.mark.parametrize(
    ("response", "language", "question", "reward"),
    [
        (ENGLISH, "question", QUESTION, 1.0),
        (GERMAN, "question", QUESTION, 0.0),
        (GERMAN, "de", QUESTION, 1.0),
        (ENGLISH, "de", QUESTION, 0.0),
        (CHINESE, "zh", QUESTION, 1.0),
        (GERMAN, "question", "Wie viele Stunden braucht der Zug von Paris nach Lyon?", 1.0),
        ("\\boxed{2}", "question", QUESTION, 0.0),  # no prose at all
        ("", "en", QUESTION, 0.0),
        ("$x$ is 2", "en", QUESTION, 0.0),  # two letters
        ("\\boxed{2}", "question", "2*7+3=", 1.0),  # the question has no language
        (f"<think>{GERMAN}</think>", "de", QUESTION, 1.0),  # thoughts count
        (f"{GERMAN}\n```python\n# the train leaves at nine and arrives at eleven\nprint(2)\n```", "de", QUESTION, 1.0),
        (f"$$\\text{{the train leaves at nine and arrives at eleven}}$$ {GERMAN}", "de", QUESTION, 1.0),
    ],
)
def test_language_of_the_response_is_that_of_the_question_or_a_named_one(response, language, question, reward):
    assert language_reward(response, language, question) == reward


def test_mixed_languages_are_paid_for_their_share():
    mixed = language_reward((ENGLISH + " ") * 4 + (GERMAN + " ") * 4, "en", QUESTION)
    assert 0.35 < mixed < 0.6
    assert language_reward((ENGLISH + "\n") * 4 + CHINESE * 3, "en", QUESTION) < 0.6


def test_languages_that_a_setting_may_name_are_those_of_the_library():
    from py3langid import langid

    language_reward(ENGLISH, "en", QUESTION)  # loads it
    known = {str(one) for one in langid.IDENTIFIER.nb_classes}
    assert known - {"zxx"} == LANGUAGES  # zxx: no language


def test_hostile_texts_have_their_language_told_in_no_time():
    begin = time.process_time()
    for text in ("$", "`", "<a", "```", "\\[", "a", "\\(", ".", "\ud800", "$$a", "~~~\n"):
        assert 0 <= language_reward(text * 50_000, "en", QUESTION) <= 1
    assert time.process_time() - begin < 5
