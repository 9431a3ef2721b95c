"""Prompts by how much they taught: their sums against numbers worked out by hand, dots, pages, equal answers as one."""

from __future__ import annotations

import pytest
from django.urls import reverse

from hacrl_web.insight.rollouts import prompt_list
from tests.support.web.insight_rows import contribution, insert, rollout


@pytest.fixture
def run(make_run, user):
    return make_run(user, algorithm={"name": "hacpo"})


def shown(web, run, query: str = ""):
    answer = web.get(f"{reverse('insight:run_rollouts', args=[run.pk])}?{query}")
    assert answer.status_code == 200
    return answer.context


def prompts(web, run, query: str = "") -> list[tuple]:
    return [(line.step, line.prompt_id, line.weight) for line, *_ in shown(web, run, query)["lines"]]


@pytest.fixture
def rows(run):
    """Step 4: on p, A is right once of two and B never; on q both are right. Step 5 has r, with one unscorable."""
    insert(
        run.pk,
        [
            rollout(1, 4, "A", "p", 0, reward=1.0), rollout(2, 4, "A", "p", 1, reward=0.0),
            rollout(3, 4, "B", "p", 0, reward=0.0), rollout(4, 4, "B", "p", 1, reward=0.0),
            rollout(5, 4, "A", "q", 0, reward=1.0), rollout(6, 4, "B", "q", 0, reward=1.0, completion="two words"),
            rollout(7, 5, "A", "r", 0, reward=None), rollout(8, 5, "B", "r", 0, reward=1.0),
            contribution(11, 4, "B", "A", "p", 0, weight=-1.0, sequence_ratio=0.5),
            contribution(12, 4, "A", "A", "p", 0, weight=2.5, sequence_ratio=1.0),
            contribution(13, 4, "A", "B", "q", 0, weight=3.0, sequence_ratio=0.8),
            contribution(15, 4, "B", "B", "p", 0, weight=0.0, reward=0.0),
            contribution(14, 5, "A", "B", "r", 0, weight=0.25, sequence_ratio=0.9),
        ],
    )  # fmt: skip


def test_prompts_are_sorted_by_the_sum_of_absolute_weights_of_the_learner_and_source(web, run, rows):
    assert prompts(web, run) == [(5, "r", 0.25)]  # the newest step
    assert prompts(web, run, "step=4") == [(4, "p", 3.5), (4, "q", 3.0)]
    assert prompts(web, run, "step=4&learner=A") == [(4, "q", 3.0), (4, "p", 2.5)]
    assert prompts(web, run, "step=4-5&shared=yes") == [(4, "q", 3.0), (4, "p", 1.0), (5, "r", 0.25)]
    # Ratios .5, .8 and .9 are 2, 1.25 and 1.11 from 1.
    assert [prompt for _, prompt, _ in prompts(web, run, "step=4-5&sort=surprise")] == ["p", "q", "r"]


def test_only_prompts_with_a_matching_rollout_are_listed(web, run, rows):
    assert [prompt for _, prompt, _ in prompts(web, run, "reward=none")] == ["r"]
    assert [prompt for _, prompt, _ in prompts(web, run, "q=two")] == ["q"]
    assert [prompt for _, prompt, _ in prompts(web, run, "learner=A&source=B&q=two")] == ["q"]
    assert prompts(web, run, "prompt=none") == []
    # A rescued B: all of B's rollouts to p are incorrect, one of A's is correct.
    for name in ("prompt_kind", "lesson"):  # the second in saved addresses
        assert [prompt for _, prompt, _ in prompts(web, run, f"step=4&learner=B&source=A&{name}=rescue")] == ["p"]


def test_each_answer_has_a_dot_and_the_rollout_that_taught_most_is_opened(web, run, rows):
    context = shown(web, run, "step=4")
    [(p, url, is_open), (q, *_)] = context["lines"]
    assert [(one.agent, one.verdicts) for one in p.agents] == [
        ("A", ["correct", "incorrect"]),
        ("B", ["incorrect"] * 2),
    ]
    assert (p.question, p.seq, is_open, url) == ("question p", 11, True, "?step=4&rollout=11")  # shared before its own
    assert q.seq == 13
    assert (context["selected"].agent, context["selected"].taught.learner) == ("A", "B")
    assert shown(web, run)["lines"][0][0].agents[0].verdicts == ["unscorable"]
    # A rollout's own address opens its step.
    assert [line.prompt_id for line, *_ in shown(web, run, "rollout=6")["lines"]] == ["p", "q"]


def test_pages_of_prompts_lead_forth_and_back(web, run, rows, monkeypatch):
    monkeypatch.setattr(prompt_list, "PAGE_SIZE", 1)
    context = shown(web, run, "step=4")
    assert [context["links"][name] for name in ("onward", "back", "N")] == [
        "?step=4&after=0.1",
        "",
        "?step=4&after=0.1",
    ]
    second = shown(web, run, "step=4&after=0.1")
    assert [line.prompt_id for line, *_ in second["lines"]] == ["q"]
    assert second["links"]["back"] == "?step=4&before=0.1&rollout=last"
    assert [line.prompt_id for line, *_ in shown(web, run, "step=4&before=0.1")["lines"]] == ["p"]


def test_many_rollouts_are_read_from_the_newest_steps_and_the_page_says_so(web, run, rows, monkeypatch):
    monkeypatch.setattr(prompt_list, "ROWS_READ", 5)
    page = shown(web, run, "agent=B")["page"]
    assert ([line.prompt_id for line in page.lines], page.from_step) == (["r"], 5)


def test_equal_answers_are_one_card_and_the_selected_one_is_beside_the_learners_best(web, run):
    insert(
        run.pk,
        [
            *(rollout(n + 1, 4, "B", "p", n, completion="it is 81") for n in range(8)),
            rollout(9, 4, "A", "p", 0, completion="it is 41", reward=0.0),
            rollout(10, 4, "A", "p", 1, completion="no idea", reward=0.0),
            rollout(11, 4, "A", "p", 2, completion="it is 41", reward=0.0),
            *(contribution(20 + n, 4, "A", "B", "p", n, weight=1.0 + n) for n in range(8)),
        ],
    )
    context = shown(web, run, "step=4")
    group = context["group"]
    own, source = group.columns
    assert [card.samples for card in own.cards] == [[0, 2], [1]]
    [card] = source.cards
    assert (card.samples, card.row["sample"], len(card.contributions)) == (list(range(8)), 7, 8)
    assert [one.contribution.row.seq for one in group.waterfalls] == [27]  # of the selected sample alone
    one = group.comparison
    assert (one.learner.agent, one.own.samples, one.num_own) == ("A", [0, 2], 3)
    assert [part["text"] for part in one.parts if part["differs"]] == ["81"]
    assert [part["text"] for part in one.own_parts if part["differs"]] == ["41"]
    text = web.get(f"{reverse('insight:run_rollouts', args=[run.pk])}?step=4").content.decode()
    assert "<strong>×8</strong> · samples 0, 1, 2, 3, 4, 5, 6, 7" in text
    assert "it is <mark>81</mark>" in text
    # n goes from answer to answer, p back.
    assert context["links"]["p"] == "?step=4&rollout=10"
