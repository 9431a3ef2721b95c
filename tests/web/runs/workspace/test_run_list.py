"""The list of runs: results, orders, and a constant number of queries."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from hacrl_web.runs.models import Run, Sweep, Worker
from hacrl_web.runs.telemetry.scores import CURVE_EVENTS, curves
from hacrl_web.runs.telemetry.shipper import Shipper
from hacrl_web.runs.templatetags.formats import amount
from hacrl_web.runs.workspace.rows import with_gains, with_short_names
from tests.support.web.factories import make_run, make_user, write_spool
from workers.contract.events import Evaluation

pytestmark = pytest.mark.django_db


def evaluated(run: Run, *rounds: tuple[int, ...], attempt: int = 1) -> Run:
    """The run after evaluations, each of (step, correct answers of 10 of each agent that was evaluated)."""
    run = Run.objects.claim(run.pk, Worker("host", 1, 0.0, "here")) or run
    bodies = [
        Evaluation(
            step=step, agent=agent, benchmark=run.spec["data"]["benchmark"], metric="accuracy", value=right / 10,
            asked=10, correct=right,
        )
        for step, *counts in rounds
        for agent, right in zip(run.agent_names, counts, strict=False)
    ]  # fmt: skip
    write_spool(run.run_dir, attempt, *bodies)
    Shipper(run.pk, run.run_dir, attempt).ship()
    run.refresh_from_db()
    return run


@pytest.fixture
def owner(client):
    owner = make_user("ada")
    client.force_login(owner)
    return owner


def names(page: str) -> list[str]:
    return re.findall(r'<th scope="row" class="name">(?:<div class="run-line">)?<a[^>]*>([^<]+)</a>', page)


def test_score_is_the_mean_of_the_newest_evaluation_of_all_agents(owner):
    run = evaluated(make_run(owner), (0, 2, 4), (5, 6, 8), (10, 9))  # at step 10 one agent alone so far
    assert run.score == pytest.approx(0.7)
    assert curves([run])[run.pk] == [(0, pytest.approx(0.3)), (5, pytest.approx(0.7))]


def test_list_shows_accuracy_from_start_to_now_and_how_long_it_took(client, owner):
    run = evaluated(make_run(owner, name="swan"), (0, 2, 4), (5, 6, 8))
    make_run(owner, name="duck")
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(
        state="completed", started_at=now - timedelta(minutes=9), finished_at=now - timedelta(minutes=6)
    )
    page = client.get("/runs/?layout=table").content.decode()
    assert "0.300 → " in page
    assert "<strong>0.700</strong>" in page
    assert "<polyline points=" in page
    assert "3 min 00 s" in page
    assert client.get(f"/api/v1/runs/{run.pk}").json()["score"] == pytest.approx(0.7)


def test_list_is_sorted_by_each_heading_and_runs_without_a_value_come_last(client, owner):
    for name, right in (("b", 5), ("a", 9), ("c", None)):
        run = make_run(owner, name=name)
        if right is not None:
            evaluated(run, (0, right, right))
    assert names(client.get("/runs/").content.decode()) == ["c", "a", "b"]
    for sort, wanted in (("-score", "abc"), ("score", "bac"), ("name", "abc"), ("-name", "cba"), ("created", "bac")):
        assert names(client.get(f"/runs/?sort={sort}").content.decode()) == list(wanted), sort
    page = client.get("/runs/?sort=-score").content.decode()
    assert re.search(r'aria-sort="descending"><a class="sort" href="\?sort=score">Accuracy', page)
    assert client.get("/runs/?sort=owner__password").status_code == 200  # counts as absent
    for sort in ("state", "-duration", "algorithm", "-seed"):
        assert len(names(client.get(f"/runs/?sort={sort}").content.decode())) == 3


def test_number_of_queries_does_not_grow_with_the_list(client, owner, django_assert_max_num_queries):
    for _ in range(2):
        evaluated(make_run(owner), (0, 2, 4), (5, 6, 8))
    client.get("/runs/")
    with django_assert_max_num_queries(40) as few:
        client.get("/runs/?sort=-score")
    for _ in range(6):
        evaluated(make_run(owner), (0, 2, 4), (5, 6, 8))
    with django_assert_max_num_queries(len(few)):
        client.get("/runs/?sort=-score")


def test_run_with_very_many_evaluations_has_a_score_and_no_curve(owner):
    run = evaluated(make_run(owner), *((step, 1, 2) for step in range(CURVE_EVENTS // 2 + 1)))
    assert run.score == pytest.approx(0.15)
    assert curves([run]) == {run.pk: []}


def test_score_says_on_which_benchmark_it_is(client, owner):
    first = evaluated(make_run(owner), (0, 2, 4))
    own = first.spec["data"]["benchmark"]
    page = client.get("/runs/?layout=table").content.decode()
    assert f">on {own}</span></th>" in page
    assert f'<span class="small quiet">on {own}</span>' not in page, "the heading says it for all rows"
    second = evaluated(make_run(owner), (0, 2, 4))
    assert second.spec["data"]["benchmark"] != own
    page = client.get("/runs/?layout=table").content.decode()
    assert ">on its own benchmark</span></th>" in page
    for run in (first, second):
        assert f'<span class="small quiet">on {run.spec["data"]["benchmark"]}</span>' in page


def test_sum_of_verdicts_is_a_whole_number_and_of_rewards_not():
    assert [amount(value) for value in (12, 12.0, 12.5, 1234)] == ["12", "12", "12.5", "1,234"]


def test_panels_leave_out_what_no_listed_run_measures(client, owner):
    run = make_run(owner, algorithm="hacpo")
    Run.objects.filter(pk=run.pk).update(spec=run.spec | {"compute": {"device": "cpu"}})

    def unmeasured() -> list[str]:
        return client.get("/runs/").content.decode().split('"unmeasured": [')[1].split("]")[0].split(", ")

    assert {'"kl"', '"turns/mean"', '"engine_logp_difference"'} <= set(unmeasured())
    assert '"omega"' not in unmeasured()
    run = make_run(owner, algorithm="hacpo")
    Run.objects.filter(pk=run.pk).update(
        spec=run.spec | {"algorithm": {"name": "hacpo", "beta": 0.1}, "rollout": {"engine": "vllm"}}
    )
    assert '"kl"' not in unmeasured()
    assert '"engine_logp_difference"' not in unmeasured()


def test_pages_of_models_and_groups_list_their_newest_runs(client, owner):
    run = evaluated(make_run(owner, name="swan"), (0, 2, 4), (5, 6, 8))
    make_run(owner, name="of other models")
    draft = make_run(owner, name="draft")
    Run.objects.filter(pk=draft.pk).update(state="draft", group=run.group)
    model = run.group.agents.first().model
    for path in (run.group.get_absolute_url(), model.get_absolute_url()):
        page = client.get(path).content.decode()
        assert names(page.split("<h2>Newest runs</h2>")[1]) == ["swan"]
        assert "0.300 → " in page
    run.delete()
    assert "Newest runs" not in client.get(model.get_absolute_url()).content.decode()


def in_sweep(owner, **scores: float) -> dict[str, Run]:
    """Completed runs of one sweep by algorithm, with these scores."""
    made = {name: make_run(owner, name=f"both rule {name}") for name in scores}
    sweep = Sweep.objects.create(owner=owner, project=next(iter(made.values())).project, name="both")
    runs = {}
    for name, score in scores.items():
        run = made[name]
        Run.objects.filter(pk=run.pk).update(
            sweep=sweep, algorithm=name.partition("_")[0], variant=name, state="completed", score=score
        )
        runs[name] = Run.objects.get(pk=run.pk)
    return runs


def test_list_shows_the_difference_to_the_baseline_of_the_same_sweep_and_seed(client, owner):
    runs = in_sweep(owner, gspo=0.46, hacpo=0.66)
    alone = make_run(owner, name="alone")
    rows = {str(run.pk): run for run in with_gains([*runs.values(), alone])}
    assert rows[str(runs["hacpo"].pk)].gain == pytest.approx(0.2)
    assert (rows[str(runs["gspo"].pk)].gain, rows[str(alone.pk)].gain) == (None, None)
    page = client.get("/runs/?sort=gain").content.decode()
    assert "vs GSPO" in page
    assert "+0.200" in page


def test_run_of_a_sweep_with_two_baselines_has_no_difference(owner):
    runs = in_sweep(owner, gspo_low=0.4, gspo_high=0.5, hacpo=0.66)
    assert [run.gain for run in with_gains(list(runs.values()))] == [None, None, None]


def test_names_of_a_sweep_are_listed_without_what_they_begin_with(owner):
    short = with_short_names([*in_sweep(owner, gspo=0.4, hacpo=0.6).values(), make_run(owner, name="both of us")])
    assert [(run.prefix, run.rest) for run in short] == [
        ("both rule ", "gspo"), ("both rule ", "hacpo"), ("", "both of us"),
    ]  # fmt: skip
