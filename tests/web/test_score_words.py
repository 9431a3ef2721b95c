"""With partial credit a held-out score is a mean reward, and no page, answer or command calls it an accuracy."""

from __future__ import annotations

import re

import pytest

from hacrl_web.runs.models import Run, State
from tests.support.web.factories import make_run, make_user
from tests.support.web.insight_help import add_checkpoint, evaluation, stored
from workers.contract.events import Evaluation
from workers.contract.verifier_kinds import score_word

GRADED = {"verifier": "function/steps@3f1c09a2b7de", "metric": "accuracy", "correct": 0, "asked": 10}


@pytest.mark.parametrize(
    ("kinds", "word"),
    [
        (["math"], "accuracy"),
        (["math/4 flexible", "choice/2", ""], "accuracy"),
        (["function"], "mean reward"),
        (["function/steps@3f1c09a2b7de"], "mean reward"),
        (["math", "function"], "score"),
        ([], "accuracy"),
    ],
)
def test_word_follows_from_the_verifiers(kinds, word):
    assert score_word(kinds) == word


@pytest.fixture
def graded(client, db) -> Run:
    """A completed run with two evaluations of both agents by a function, and a checkpoint."""
    owner = make_user("ada")
    client.force_login(owner)
    benchmark = make_run(owner, name="other").spec["data"]["benchmark"]
    bodies = [
        Evaluation(step=step, agent=agent, benchmark=benchmark, value=value, **GRADED)
        for step, value in ((0, 0.3), (5, 0.6))
        for agent in "AB"
    ]
    run = stored(owner, *bodies)
    run.spec["data"] |= {"verifier": "function", "reward_function": "/steps.py"}
    run.spec["data"]["benchmark"] = benchmark
    run.save(update_fields=["spec"])
    add_checkpoint(run, 5)
    return run


def text_of(page: bytes) -> str:
    """What a reader sees or hears, without keys of charts and addresses."""
    text = re.sub(r'data-hero="accuracy"|data-metric="accuracy"|value="accuracy"|"accuracy"', "", page.decode())
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL).lower()


def test_pages_of_a_run_with_partial_credit_say_mean_reward(client, graded):
    for page in ("", "/checkpoints", "/evaluations"):
        text = text_of(client.get(f"/runs/{graded.pk}{page}").content)
        assert "mean reward" in text, page
        assert "accuracy" not in text, page
    home = text_of(client.get("/").content)
    assert "held-out mean reward" in home
    compare = text_of(client.get(f"/compare?runs={graded.pk}", follow=True).content)
    assert "<h2>held-out mean reward on " in compare
    assert "held-out accuracy" not in compare


def test_list_of_runs_of_both_kinds_says_score(client, graded):
    page = client.get("/runs/").content.decode()
    assert f'title="Held-out mean reward on {graded.spec["data"]["benchmark"]}, mean over the agents' in page
    graded.__class__.objects.exclude(pk=graded.pk).delete()
    assert re.search(r">Mean reward\s*<", client.get("/runs/").content.decode())
    make_run(graded.owner)
    assert re.search(r">Score\s*<", client.get("/runs/").content.decode())


def test_answers_and_boards_carry_the_word(client, graded):
    api = f"/api/v1/runs/{graded.pk}"
    assert client.get(api).json()["score_word"] == "mean reward"
    assert client.get(f"{api}/checkpoints").json()["score_word"] == "mean reward"
    [benchmark] = client.get(f"{api}/evaluations").json()["benchmarks"]
    assert benchmark["score_word"] == "mean reward"
    assert client.get(f"{api}/collaboration").json()["score_word"] == "mean reward"
    Run.objects.filter(pk=graded.pk).update(state=State.COMPLETED)
    [row] = client.get("/api/v1/boards").json()["items"]
    table = client.get(f"/api/v1/boards/table?{row['query']}").json()
    assert [column["measured_by"] for column in table["columns"]] == ["avg@1, mean reward"]
    binary = stored(graded.owner, *(evaluation(step, agent, 0.5) for step in (0, 5) for agent in "AB"))
    assert client.get(f"/api/v1/runs/{binary.pk}").json()["score_word"] == "accuracy"
