"""The Evaluations tab: what it says of benchmarks, agents and single questions is what the events say."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from django.urls import reverse

from hacrl_web.insight.checkpoints import checkpoints
from hacrl_web.insight.evaluations import answer_sheets as sheets
from hacrl_web.insight.evaluations import evaluations
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.metric_series import read_series
from tests.support.web.factories import make_benchmark, make_user
from tests.support.web.insight_help import claimed, store, stored
from workers.contract.events import Answers, Body, Evaluation, Questions

pytestmark = pytest.mark.django_db

OWN = "own"
# Marks of six questions: agent -> (at step 0, at step 10), k = 1.
MARKS = {"A": ("110000", "101000"), "B": ("110-00", "011-00")}
SUBJECTS = ["x", "x", "x", "y", "y", "y"]


def questions(benchmark: str = OWN, ids: str = "abcdef") -> Questions:
    return Questions(
        benchmark=benchmark,
        first=0,
        ids=list(ids),
        questions=[f"What is {one}?" for one in ids],
        answers=list(ids.upper()),
        subjects=SUBJECTS[: len(ids)],
        difficulties=["hard"] + [""] * (len(ids) - 1),
    )


def answers(step: int, agent: str, marks: list[str], benchmark: str = OWN, response: str = "text") -> list[Body]:
    """An evaluation with one answer for each list of marks."""
    right, scored = "".join(marks).count("1"), sum(mark != "-" for one in marks for mark in one)
    count = len(marks[0])
    value = right / scored
    return [
        Answers(
            step=step,
            agent=agent,
            benchmark=benchmark,
            first=0,
            marks=marks,
            majority=[f"m{place}" for place in range(len(marks))],
            responses=[f"{response} of {agent} to {place}" for place in range(len(marks))],
        ),
        Evaluation(
            step=step,
            agent=agent,
            benchmark=benchmark,
            metric="accuracy",
            value=value,
            correct=right,
            asked=scored,
            slices={"x": (right, scored)},
            num_samples=count,
            unscorable=len(marks) * count - scored,
            estimates={f"avg@{count}": value, "pass@1": value},
            questions="d1g35t",
            verifier="math/11",
        ),
    ]


@pytest.fixture
def run(owner) -> Run:
    bodies: list[Body] = [questions()]
    for agent, both in MARKS.items():
        for step, marks in zip((0, 10), both, strict=True):
            bodies += answers(step, agent, list(marks))
    return stored(owner, *bodies)


def page(client: Any, run: Run, query: str = "", status: int = 200) -> str:
    answer = client.get(reverse("insight:run_evaluations", args=[run.pk]) + query)
    assert answer.status_code == status
    return answer.content.decode()


def listed(text: str) -> list[str]:
    """Ids of the questions in the table."""
    return re.findall(r'<th scope="row" class="wide-name"><a href="[^"]*">(\w+)</a>', text)


def test_page_before_the_first_evaluation_says_what_it_will_show(client, owner):
    assert "No evaluation yet" in page(client, claimed(owner))


def test_scores_are_those_of_the_events_with_formula_verifier_and_questions(client, run):
    text = page(client, run)
    (benchmark,) = evaluations.evaluation_summary(run)
    a, b = benchmark.agents
    assert [(agent.first.value, agent.last.value) for agent in (a, b)] == [(2 / 6, 2 / 6), (2 / 5, 2 / 5)]
    assert (b.last.correct, b.last.asked, b.last.unscorable) == (2, 5, 1)
    assert a.best.step == 0  # the first of equals
    assert '<abbr title="mean over questions of c / n' in text
    assert "math/11" in text
    assert 'title="SHA-256 d1g35t"' in text
    assert "2 / 5" in text


# By hand from MARKS. a: both right, B loses it. b: both right, A loses it. c: both newly solved. d: A wrong, B lost.
@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("", "abcdef"),
        ("?show=gained", "c"),
        ("?show=lost", "ab"),
        ("?show=lost&agent=A", "b"),
        ("?show=wrong", "ef"),  # d: what B wrote could not be scored, so it is not all wrong
        ("?show=disagree", "ab"),
        ("?show=unscorable", "d"),
        ("?show=unscorable&agent=A", ""),
        ("?subject=y", "def"),
        ("?difficulty=hard", "a"),
        ("?q=C", "c"),
        ("?show=gained&from=10", ""),
        ("?show=lost&from=10&to=0", "c"),  # backwards what was solved is lost
    ],
)
def test_filters_show_the_questions_that_they_name(client, run, query, ids):
    assert listed(page(client, run, query)) == list(ids)


def test_partial_credit_is_shown_as_such():
    one, several = sheets.mark("~"), sheets.mark("1~0")
    assert (one.words, one.short, one.kind) == ("partial credit", "~", "incorrect")
    assert (several.words, several.short) == ("1 of 3 correct, 1 with partial credit", "1/3")


def test_question_is_solved_where_half_of_its_scored_samples_are_right():
    solved = [sheets.mark(letters).is_solved for letters in ("1100", "1000", "1-0", "--", "", "1", "0")]
    assert solved == [True, False, True, None, None, True, False]
    assert sheets.mark("11-0").words == "2 of 3 correct, 1 could not be scored"
    assert [sheets.mark(letters).words for letters in ("1", "0", "-", "")] == [
        "correct",
        "incorrect",
        "could not be scored",
        "not evaluated",
    ]


def test_opened_question_shows_the_stored_responses_as_text(client, owner):
    hostile = "<script>alert(1)</script>\u202e"
    run = stored(owner, questions(), *answers(0, "A", list("110000"), response=hostile))
    text = page(client, run, "?question=1")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩ of A to 1" in text
    assert "<script>alert" not in text
    assert "What is b?" in text
    assert 'data-key="n"' in text
    assert 'data-key="p"' in text
    assert 'data-key="p"' not in page(client, run, "?question=0")


def test_page_of_many_questions_is_cut_and_reads_few_rows(client, owner, django_assert_max_num_queries):
    bodies: list[Body] = []
    for first in range(0, 300, 100):
        ids = [f"q{first + place:03}" for place in range(100)]
        empty = [""] * 100
        bodies.append(
            Questions(
                benchmark=OWN, first=first, ids=ids, questions=ids, answers=ids, subjects=empty, difficulties=empty
            )
        )
    for step in (0, 10, 20):
        for agent in "AB":
            for first in range(0, 300, 100):
                marks = ["1" if (first + place + step) % 3 else "0" for place in range(100)]
                more = {"majority": ["7"] * 100, "responses": ["text"] * 100}
                bodies.append(Answers(step=step, agent=agent, benchmark=OWN, first=first, marks=marks, **more))
            bodies.append(answers(step, agent, ["1"])[1])
    run = stored(owner, *bodies)
    with django_assert_max_num_queries(25):
        text = page(client, run, "?page=2")
    assert listed(text) == [f"q{number:03}" for number in range(50, 100)]
    assert "Page 2 of 6" in text
    assert listed(page(client, run, "?page=99"))[-1] == "q299"


def test_csv_holds_the_questions_that_the_page_lists_and_no_formula(client, owner):
    bodies = [*answers(0, "A", list("110000")), *answers(10, "A", list("101000"))]
    bodies[0].majority[1] = "=1+1"  # type: ignore[attr-defined]
    run = stored(owner, questions(), *bodies)
    answer = client.get(reverse("insight:evaluations_csv", args=[run.pk]) + "?show=lost")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [row["question"] for row in rows] == listed(page(client, run, "?show=lost")) == ["b"]
    assert rows[0]["A, step 0, most frequent answer"] == "'=1+1"
    assert (rows[0]["A, step 0, right"], rows[0]["A, step 10, right"], rows[0]["reference"]) == ("1", "0", "B")


def test_later_attempt_of_a_step_wins(client, run):
    store(run, questions(), *answers(10, "A", list("111111")), attempt=2)
    (benchmark,) = evaluations.evaluation_summary(run)
    assert benchmark.agents[0].last.value == 1.0
    assert listed(page(client, run, "?show=gained&agent=A")) == list("cdef")


def test_two_runs_are_compared_by_the_ids_of_their_questions(client, owner, run):
    other = stored(owner, questions(ids="fxa"), *answers(7, "A", ["1", "1", "0"]))
    # A of the other run solved f and not a; of this run at step 10 a and c.
    assert listed(page(client, run, f"?against={other.pk}&show=gained&agent=A")) == ["a"]
    assert listed(page(client, run, f"?against={other.pk}&show=lost&agent=A")) == ["f"]
    text = page(client, run, f"?against={other.pk}&question=0")
    assert "text of A to 2" in text  # the other run's response to a
    assert "No response is stored" in text  # B was not there


def test_run_of_other_questions_is_said_to_be_one(client, owner, run):
    bodies = answers(7, "A", ["1", "0"])
    other = stored(owner, questions(ids="ab"), bodies[0], bodies[1].model_copy(update={"questions": "other"}))
    assert "did not have the same questions" in page(client, run, f"?against={other.pk}")


def test_another_user_s_run_is_not_compared_with(client, run):
    foreign = stored(make_user(), questions(), *answers(0, "A", list("000000")))
    assert str(foreign.pk) not in page(client, run, f"?against={foreign.pk}")


def test_run_without_single_answers_says_so(client, owner):
    run = stored(owner, answers(0, "A", ["1"])[1])
    assert "No answers to single questions are stored" in page(client, run)


# What else reads evaluations shows the run's own benchmark


@pytest.fixture
def two(owner) -> Run:
    """Its own benchmark at steps 0 and 10, a further one that is easier."""
    benchmark, other = make_benchmark(owner), make_benchmark(owner)
    run = claimed(owner, benchmark=benchmark.pk, evaluation={"benchmarks": [other.pk]})
    for step, own, others in ((0, "100000", "111111"), (10, "110000", "100000")):
        for agent in "AB":
            bodies = answers(step, agent, list(own), benchmark.name) + answers(step, agent, list(others), other.name)
            store(run, *bodies)
    return run


def test_charts_and_best_checkpoint_are_of_the_run_s_own_benchmark(two):
    (accuracy,) = read_series(two, {"accuracy"}, {"A"})
    assert list(accuracy.points()) == [(0, 1 / 6), (10, 2 / 6)]
    scores = checkpoints.accuracies(two)
    assert scores == {0: {"A": 1 / 6, "B": 1 / 6}, 10: {"A": 2 / 6, "B": 2 / 6}}
    assert checkpoints.best_step(scores, [0, 10], 2) == 10


def test_api_tells_points_by_benchmark_and_agent(client, two):
    benchmarks = client.get(f"/api/v1/runs/{two.pk}/evaluations").json()["benchmarks"]
    assert [one["is_own"] for one in benchmarks] == [True, False]
    points = benchmarks[0]["agents"][0]["points"]
    assert [(point["step"], point["value"], point["verifier"]) for point in points] == [
        (0, pytest.approx(1 / 6), "math/11"),
        (10, pytest.approx(2 / 6), "math/11"),
    ]
