"""Evaluations on demand: the form and the API queue an ordinary run of no training step, or say what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.urls import reverse

from hacrl_web.insight.checkpoints import reuse
from hacrl_web.leaderboard.board import boards
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.launch.again import retry
from hacrl_web.runs.launch.create import EVALUATION_ONLY
from hacrl_web.runs.models import Run
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.runs.worker.tasks import supervise
from tests.support.web.factories import launch_request, make_benchmark, make_group, make_model, make_run, make_user
from tests.support.web.insight_help import add_checkpoint, claimed
from workers.contract.spec.run import RunSpec

pytestmark = pytest.mark.django_db
PATH = "/evaluate"


@pytest.fixture
def request_of(owner):
    """A request that is accepted: two models, two benchmarks."""

    def make(**changes: Any) -> dict[str, Any]:
        own = {"models": [make_model(owner, f"M{n}").pk for n in range(2)]} if "models" not in changes else {}
        benchmarks = {"benchmarks": [make_benchmark(owner).pk, make_benchmark(owner).pk]}
        return {**own, **benchmarks, "num_samples": 4, "temperature": 0.8, "max_completion_length": 64, **changes}

    return make


def post(client: Any, body: dict[str, Any]) -> Any:
    return client.post("/api/v1/evaluations", json.dumps(body), content_type="application/json")


def wrong(client: Any, body: dict[str, Any]) -> dict[str, str]:
    """field -> message of a refused request, of which nothing is written."""
    answer = post(client, body)
    assert answer.status_code in (404, 409, 422), answer.content
    assert not Run.objects.filter(total_steps=0).exists()
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


def test_form_queues_a_run_of_no_step(client, owner, request_of):
    body = request_of(name="Before release", seed=7)
    answer = client.post(PATH, body)
    run = Run.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, run.get_absolute_url())
    assert (run.name, run.state, run.total_steps, run.group) == ("Before release", "queued", 0, None)
    assert run.algorithm == EVALUATION_ONLY
    spec = RunSpec.model_validate(run.spec)
    assert [agent.name for agent in spec.agents] == ["M0", "M1"]
    assert spec.is_evaluation_only
    assert (spec.evaluation.num_samples, spec.evaluation.temperature, spec.seed) == (4, 0.8, 7)
    assert spec.rollout.max_completion_length == 64
    assert spec.data.benchmark == run.benchmark.name
    assert [one.benchmark for one in spec.evaluation.benchmarks] != [spec.data.benchmark]
    assert len(spec.evaluation.benchmarks) == 1


def test_group_is_evaluated_with_the_prompt_settings_that_it_gives(client, owner, request_of):
    group = make_group(owner)
    agent = group.agents.first()
    agent.settings, agent.prompt_format = {"prompt_template": "Q: {question}"}, "plain"
    agent.save()
    assert post(client, request_of(models=[], group=group.pk)).status_code == 201
    run = Run.objects.get()
    assert (run.group, run.agent_names) == (group, ["A", "B"])
    assert (run.spec["agents"][0]["prompt_template"], run.spec["agents"][0]["prompt_format"]) == (
        "Q: {question}",
        "plain",
    )


def test_checkpoint_is_evaluated_from_a_copy_that_outlives_it(client, owner, request_of):
    trained = claimed(owner)
    add_checkpoint(trained, 3)
    body = request_of(run=str(trained.pk), step=3)
    assert post(client, body).status_code == 201
    run = Run.objects.exclude(pk=trained.pk).get()
    assert run.agent_names == ["M0", "M1", "A step 3", "B step 3"]
    assert run.data_folder == data_folder_id()  # no other host has the files
    for place, name in enumerate(("A", "B")):
        folder = Path(run.spec["agents"][2 + place]["model"])
        assert folder == Path(django_settings.RUNS_DIR).resolve() / str(run.pk) / "models" / str(place)
        own = next((trained.run_dir / "checkpoints" / "step-000003" / "agents").glob(f"{place}-*"))
        assert (folder / "weights.bin").read_bytes() == (own / "weights.bin").read_bytes(), name


def test_newest_checkpoint_is_evaluated_where_no_step_is_named(client, owner, request_of):
    trained = claimed(owner, rollout={"max_completion_length": 77})
    trained.run_dir.mkdir(parents=True)
    assert "This run has no checkpoint" in wrong(client, request_of(models=[], run=str(trained.pk)))["step"]
    for step in (3, 12):
        add_checkpoint(trained, step)
    assert post(client, request_of(models=[], run=str(trained.pk), max_completion_length="")).status_code == 201
    run = Run.objects.exclude(pk=trained.pk).get()
    assert run.agent_names == ["A step 12", "B step 12"]
    assert run.spec["rollout"]["max_completion_length"] == 77  # as in training
    odd = post(client, request_of(models=[], run=str(trained.pk), step="x"))
    assert "whole number" in odd.json()["error"]["message"]
    assert "the newest checkpoint of" in client.get(PATH, {"run": trained.pk}).content.decode()


def test_retry_of_an_evaluated_checkpoint_stays_where_its_copy_is(client, owner, request_of):
    trained = claimed(owner)
    add_checkpoint(trained, 3)
    post(client, request_of(run=str(trained.pk), step=3))
    run = Run.objects.exclude(pk=trained.pk).get()
    run.request_stop()
    again = retry(owner, run)
    assert again.data_folder == data_folder_id()
    assert Path(again.spec["agents"][2]["model"]).is_dir()


def test_checkpoint_that_cannot_be_copied_leaves_nothing(client, owner, request_of, monkeypatch):
    trained = claimed(owner)
    add_checkpoint(trained, 3)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reuse.shutil, "copyfile", full)
    monkeypatch.setattr(reuse.os, "link", full)
    answer = post(client, request_of(run=str(trained.pk), step=3))
    assert (answer.status_code, answer.json()["error"]["field"]) == (507, "step")
    assert Run.objects.count() == 1
    assert [path.name for path in Path(django_settings.RUNS_DIR).iterdir()] == [str(trained.pk)]


def test_damaged_checkpoint_is_named(client, owner, request_of):
    trained = claimed(owner)
    add_checkpoint(trained, 3)
    (weights,) = (trained.run_dir / "checkpoints" / "step-000003" / "agents").glob("0-*/weights.bin")
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    errors = wrong(client, request_of(run=str(trained.pk), step=3))
    assert "weights.bin does not match its manifest" in errors["step"]


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"models": []}, "models", "Choose 1 to 8 models; you chose 0."),
        ({"benchmarks": []}, "benchmarks", "Choose a benchmark"),
        ({"benchmarks": "1"}, "benchmarks", "Give a list of benchmarks."),
        ({"benchmarks": [10**30, True, "x"]}, "benchmarks", "There is no such benchmark."),
        ({"temperature": 0}, "num_samples", "4 samples at temperature 0 would all be the same"),
        ({"num_samples": 2000}, "num_samples", "Must be at most 1024."),
        ({"temperature": "nan"}, "temperature", "Must be a"),
        ({"max_completion_length": "1,5"}, "max_completion_length", "Must be a whole number."),
        ({"seed": -1}, "seed", "Must be at least 0."),
        ({"group": 10**30}, "group", "There is no such group."),
        ({"run": "no-uuid", "step": 1}, "run", "There is no such run."),
        ({"models": [10**30]}, "models", "There is no such model."),
        ({"steps": 3}, "steps", "There is no setting named 'steps'."),
        ({"name": "a\u202eb"}, "name", "characters that are not allowed"),
        ({"name": {"a": 1}}, "name", "Must be text."),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_nothing_is_written(client, request_of, changes, field, told):
    assert told in wrong(client, request_of(**changes))[field]


def test_form_shows_the_errors_beside_their_fields_and_keeps_what_was_typed(client, owner, request_of):
    body = request_of(temperature="0", name="kept")
    answer = client.post(PATH, body)
    text = answer.content.decode()
    assert answer.status_code == 422
    assert 'id="num_samples-error"' in text
    assert 'value="kept"' in text
    assert text.count(" checked") == 4
    assert not Run.objects.exists()


def test_nul_in_a_form_is_refused(client, owner, request_of):
    assert client.post(PATH, request_of(name="a\x00b")).status_code == 422
    assert not Run.objects.exists()


def test_response_longer_than_the_context_is_refused_and_prompts_get_what_is_left(client, owner, request_of):
    LanguageModel.objects.filter(pk=make_model(owner, "short").pk).update(context_length=100)
    short = LanguageModel.objects.get(name="short").pk
    errors = wrong(client, request_of(models=[short], max_completion_length=100))
    assert "The shortest context is 100 tokens" in errors["max_completion_length"]
    assert post(client, request_of(models=[short], max_completion_length=64)).status_code == 201
    assert Run.objects.get().spec["rollout"]["max_prompt_length"] == 36


@pytest.mark.parametrize(
    ("context", "length", "prompt"), [(None, 4096, 1024), (100, 50, 50), (4096, 3072, 1024), (9000, 4096, 1024)]
)
def test_length_that_is_left_out_fits_into_the_shortest_context(client, owner, request_of, context, length, prompt):
    models = [make_model(owner, "other").pk, make_model(owner, "short").pk]
    LanguageModel.objects.filter(name="short").update(context_length=context)
    assert client.post(PATH, request_of(models=models, max_completion_length="")).status_code == 302
    rollout = Run.objects.get().spec["rollout"]
    assert (rollout["max_completion_length"], rollout["max_prompt_length"]) == (length, prompt)


def test_model_whose_folder_has_changed_is_refused(client, owner, request_of):
    model = make_model(owner)
    (Path(model.location) / "config.json").write_text("{}")
    assert wrong(client, request_of(models=[model.pk]))["models"]


def test_objects_of_another_user_cannot_be_evaluated(client, owner, request_of):
    stranger = make_user()
    trained = claimed(stranger, name="swan of the stranger")
    add_checkpoint(trained, 3)
    foreign = {
        "models": [make_model(stranger).pk],
        "benchmarks": [make_benchmark(stranger).pk],
        "group": make_group(stranger).pk,
        "run": str(trained.pk),
    }
    own = make_model(owner).pk
    for field, value in foreign.items():
        body = request_of(**{"models": [own], field: value}, **({"step": 3} if field == "run" else {}))
        assert "There is no such" in wrong(client, body)[field]
        text = client.get(PATH, {"models": foreign["models"], "group": foreign["group"], "run": foreign["run"]})
        assert trained.name not in text.content.decode()


def test_form_is_filled_in_by_where_one_came_from(client, owner):
    model, group, benchmark = make_model(owner, "Mine"), make_group(owner), make_benchmark(owner)
    trained = claimed(owner, benchmark=benchmark.pk, rollout={"max_completion_length": 77})
    text = client.get(PATH, {"models": model.pk}).content.decode()
    assert f'id="model-{model.pk}" name="models" value="{model.pk}" checked' in text
    assert group.name in client.get(PATH, {"group": group.pk}).content.decode()
    text = client.get(PATH, {"run": trained.pk, "step": 3}).content.decode()
    assert 'value="77"' in text
    assert f'value="{benchmark.pk}" checked' in text
    for url in (model.get_absolute_url(), group.get_absolute_url(), benchmark.get_absolute_url()):
        assert f'href="{PATH}?' in client.get(url).content.decode()


def test_page_of_an_evaluation_run_has_no_tab_of_training(client, owner, request_of):
    post(client, request_of())
    run = Run.objects.get()
    answer = client.get(run.get_absolute_url())
    assert (answer.status_code, answer["Location"]) == (302, reverse("insight:run_evaluations", args=[run.pk]))
    text = client.get(answer["Location"]).content.decode()
    for name in ("Overview", "Collaboration", "Rollouts", "What-if", "Checkpoints"):
        assert f">{name}</a>" not in text
    for name in ("Evaluations", "System", "Config", "Events", "Logs"):
        assert f">{name}</a>" in text
    for name in ("run_system", "run_config", "run_events", "collaboration", "run_rollouts", "run_what_if"):
        assert client.get(reverse(f"insight:{name}", args=[run.pk])).status_code == 200


def test_evaluation_of_a_group_is_on_no_leaderboard(client, owner, request_of):
    post(client, request_of(models=[], group=make_group(owner).pk))
    Run.objects.update(state="completed")
    run = Run.objects.get()
    assert boards.sources(owner) == []
    assert boards.alone_board(owner, run.group_id, run.benchmark_id) is None


def test_training_run_asks_further_benchmarks_by_their_ids(client, owner):
    further = make_benchmark(owner)
    run = make_run(owner, evaluation={"benchmarks": [further.pk], "num_samples": 2, "temperature": 1})
    assert run.further_benchmarks == {further.name}
    clone = client.get(f"/runs/new?clone={run.pk}").content.decode()
    assert f'name="evaluation.benchmarks" value="{further.pk}" checked' in clone


def test_further_benchmark_of_another_user_is_refused_at_its_field(client, owner):
    body = {"evaluation": {"benchmarks": [make_benchmark(make_user()).pk]}}
    answer = client.post("/api/v1/runs", json.dumps(launch_request(owner, **body)), content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "evaluation.benchmarks")


@pytest.mark.django_db(transaction=True)
def test_evaluation_run_goes_the_way_of_every_run(client, owner, request_of, fake_trainer):
    post(client, request_of())
    run = Run.objects.get()
    assert supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.step, run.total_steps) == ("completed", 0, 0)
    assert run.events.filter(type="evaluation").count() == 2 * 2
    assert run.answer_chunks.count() == 2 * 2
    assert run.question_chunks.count() == 2
    text = client.get(reverse("insight:run_evaluations", args=[run.pk])).content.decode()
    assert "M0" in text
    assert "Could not" not in text
