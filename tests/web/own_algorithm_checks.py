"""Run by test_own_algorithm.py with HACRL_ALGORITHMS set: the example of docs/algorithms.md, everywhere by its file.

Not collected by itself: the algorithms of a process are read once, at its start.
"""

from __future__ import annotations

import json

import pytest
import torch
from django.urls import reverse

from hacrl_web.insight.what_if.rows import read
from hacrl_web.insight.what_if.sums import check_recorded, recorded
from hacrl_web.runs.launch.launch import launch_sweep
from hacrl_web.runs.models import Run
from tests.support.web.factories import launch_request
from tests.support.web.insight_rows import store
from tests.support.web.leaderboard_help import finish, table_of
from tests.support.workers.tiny import make_pair, make_spec, records, train
from tests.web.client.test_client import hacrl as hacrl  # its fixture
from workers.algorithms.base.tensors import MicroBatch
from workers.algorithms.registry import algorithms, refused_files
from workers.contract.spec.run import RunSpec

pytestmark = pytest.mark.django_db
NAME = "halved"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A real run under the rule: its spec and folder."""
    root = tmp_path_factory.mktemp("own")
    spec = make_spec(
        root, make_pair(root), rollout={"num_generations": 8}, training={"steps": 3}, algorithm={"name": NAME}
    )
    train(spec, root / "run")
    return spec, root / "run"


def test_files_that_cannot_be_used_are_named_with_their_reasons():
    assert NAME in algorithms()
    reasons = {path.rpartition("/")[2]: reason for path, reason in refused_files().items()}
    assert reasons["raises.py"] == "ZeroDivisionError: division by zero"
    assert "is taken by Hacpo" in reasons["taken.py"]
    assert "needs label" in reasons["unnamed.py"]
    assert "needs label" in reasons["half_good.py"]
    assert "good" not in algorithms()  # nothing of a refused file


def test_gate_may_be_a_single_number():
    rule = algorithms()["constant"]().filled(2, 1)
    weight = rule.weigh(False, 0, [0.5, 1.5], [1.0, -1.0]).weights
    assert weight == [0.5, -0.5]
    logps = torch.tensor([[-1.0], [-2.0]], requires_grad=True)
    one = torch.ones(2)
    batch = MicroBatch(logps, one[:, None], -one, torch.tensor([1.0, -1.0]), one < 0, one, one)
    loss, stats = rule.loss(batch, 0, 2.0)
    loss.backward()
    assert stats["weight"].tolist() == weight
    assert logps.grad.tolist() == [[-0.25], [0.25]]


def test_form_offers_the_rule_with_its_settings_and_names_the_refused_files(web):
    page = web.get(reverse("runs:run_create")).content.decode()
    assert "Halved sharing: every shared rollout at a fixed share of its weight" in page
    assert 'name="algorithm.share"' in page
    assert "raises.py" in page
    assert "division by zero" in page


def test_api_launches_it_and_refuses_settings_of_others_by_name(web, user):
    request = launch_request(user, algorithm={"name": NAME, "share": 0.25})
    answer = web.post("/api/v1/runs", json.dumps(request), content_type="application/json")
    assert answer.status_code == 201, answer.content
    assert Run.objects.get().spec["algorithm"]["share"] == 0.25
    request["algorithm"] = {"name": NAME, "alpha": 1.0}
    answer = web.post("/api/v1/runs", json.dumps(request), content_type="application/json")
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "algorithm.alpha"
    assert Run.objects.count() == 1


def test_command_line_launches_it(hacrl, user, tmp_path):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(launch_request(user, algorithm={"name": NAME, "share": 0.1})))
    hacrl("launch", str(path))
    assert Run.objects.get().spec["algorithm"]["share"] == 0.1


def test_trainer_trains_by_it(trained):
    spec, run_dir = trained
    rows = [row for row in records(run_dir, "contribution") if row["agent"] != row["source"] and row["weight"]]
    assert rows
    for row in rows:
        gate = spec.algorithm.share * min(row["sequence_ratio"], 1.0)
        assert row["weight"] == pytest.approx(gate * row["advantage"], rel=1e-6)


def test_what_if_waterfall_and_histogram_explain_its_weights(web, user, make_run, trained):
    spec, run_dir = trained
    run = make_run(user)
    Run.objects.filter(pk=run.pk).update(spec=spec.model_dump(mode="json"), algorithm=NAME)
    run.refresh_from_db()
    store(run, run_dir)
    rows = read(run, 0, 9, 5)
    check = check_recorded(rows, spec.rule)
    assert check.sides == check.rows > 100
    assert check.worst < 1e-6
    before = recorded(rows, spec.rule)[0, 1].weight
    answer = web.get(reverse("api-1:what_if", args=[run.pk]), {"share": 0.25}).json()
    pair = next(one for one in answer["pairs"] if (one["learner"], one["source"]) == (0, 1))
    assert pair["recorded"]["weight"] == pytest.approx(before)
    assert pair["hypothetical"]["weight"] == pytest.approx(before / 2, rel=1e-6)
    assert "share" in web.get(reverse("insight:run_what_if", args=[run.pk])).content.decode()
    row = run.contributions.exclude(weight=0).exclude(agent=spec.agents[0].name).first()
    page = web.get(reverse("insight:run_rollouts", args=[run.pk]), {"learner": row.agent, "source": row.source})
    assert page.status_code == 200


def test_board_has_its_row_beside_gspo(user):
    request = launch_request(user)
    del request["algorithm"], request["seed"]
    sweep = launch_sweep(user, {**request, "algorithms": [NAME, "gspo"], "seeds": [1], "algorithm": {"share": 0.3}})
    for run in sweep.runs.all():
        finish(run, {"A": 0.5, "B": 0.5})
    assert {group.row.algorithm for group in table_of(sweep).groups} == {NAME, "gspo"}


def test_rule_whose_numbers_are_not_finite_fails_before_training_by_name(tmp_path):
    spec = make_spec(tmp_path, make_pair(tmp_path), algorithm={"name": "not_finite"})
    assert isinstance(spec, RunSpec)
    with pytest.raises(Exception, match="algorithm not_finite returns numbers that are not finite"):
        train(spec, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
