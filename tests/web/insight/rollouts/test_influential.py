"""The most influential rollouts of a step: their order, equal answers as one, the learner's own best answer, marks."""

from __future__ import annotations

import pytest
from django.urls import reverse

from hacrl_web.insight.rollouts.turns import MAX_TOKENS, best_answer, marked_parts
from tests.support.web.insight_rows import contribution, insert, rollout


@pytest.fixture
def run(make_run, user):
    return make_run(user, algorithm={"name": "hacpo"})


def influential(web, run, **query) -> dict:
    answer = web.get(reverse("api-1:get_influential", args=[run.pk]), query)
    assert answer.status_code == 200
    return answer.json()


def test_shared_rollouts_come_by_absolute_weight_and_equal_answers_count_as_one(web, run):
    insert(
        run.pk,
        [
            *(rollout(seq, 5, "B", "p", seq, completion="81") for seq in (1, 2, 3)),
            rollout(4, 5, "B", "q", 0, completion="7"),
            rollout(5, 5, "A", "q", 0, completion="8"),
            contribution(6, 5, "A", "B", "p", 1, weight=0.5),
            contribution(7, 5, "A", "B", "p", 2, weight=3.0),
            contribution(8, 5, "A", "B", "q", 0, weight=-2.0, reward=0.0),
            contribution(9, 5, "B", "A", "q", 0, weight=0.0),  # taught nothing
            contribution(10, 5, "A", "A", "q", 0, weight=9.0),  # its own
            contribution(11, 4, "A", "B", "p", 0, weight=8.0),  # of another step
        ],
    )
    answer = influential(web, run)
    assert answer["step"] == 5
    assert [(one["seq"], one["weight"], one["count"]) for one in answer["items"]] == [(7, 3.0, 3), (8, -2.0, 1)]
    assert [one["seq"] for one in influential(web, run, step=4)["items"]] == [11]
    assert influential(web, run, step=5, learner="B")["items"] == []
    assert influential(web, run, step=77) == {"step": 77, "items": []}


def test_learners_best_own_answer_stands_beside_it_with_the_difference_marked(web, run):
    own = [("2 + 2 = 5", 0.0), ("2 + 2 = 5", 0.0), ("2 + 2 = 9", 0.0)]
    insert(
        run.pk,
        [
            rollout(1, 5, "B", "p", 0, completion="2 + 2 = 4"),
            *(rollout(2 + n, 5, "A", "p", n, completion=text, reward=r) for n, (text, r) in enumerate(own)),
            contribution(9, 5, "A", "B", "p", 0),
        ],
    )
    [item] = influential(web, run, step=5)["items"]
    assert item["prompt"] == "question p"
    assert item["parts"] == [{"text": "2 + 2 = ", "differs": False}, {"text": "4", "differs": True}]
    same, other = {"text": "2 + 2 = ", "differs": False}, {"text": "5", "differs": True}
    assert item["own"] == {"parts": [same, other], "reward": 0.0, "count": 2, "of": 3}


def test_run_that_shares_nothing_lists_own_rollouts_and_old_texts_may_be_gone(web, user, make_run):
    run = make_run(user, algorithm={"name": "gspo"})
    insert(run.pk, [contribution(2, 1, "A", "A", "p", 0, weight=2.0)])
    [item] = influential(web, run)["items"]
    assert (item["learner"], item["source"], item["parts"], item["own"]) == ("A", "A", [], None)


def test_best_answer_is_the_most_frequent_of_the_highest_reward():
    assert best_answer([]) is None
    answers = [(0.0, "a", 0), (0.0, "a", 1), (1.0, "b", 2), (1.0, "c", 3), (1.0, "c", 4), (None, "c", 5)]
    assert best_answer(answers) == (3, 3)


def test_long_texts_are_not_compared():
    long = "a " * MAX_TOKENS
    assert marked_parts(long, "b") == ([{"text": long, "differs": False}], [{"text": "b", "differs": False}])
    assert marked_parts("", "b") == ([], [{"text": "b", "differs": True}])
