"""Presets by name: in the body of a launch request, in the API's list, and on the command line."""

from __future__ import annotations

import json

import pytest

from hacrl_web.runs.launch.presets import MACHINE_PRESETS, presets
from hacrl_web.runs.models import Run, Sweep
from tests.support.web.factories import launch_request, make_group, make_user
from tests.web.client.test_client import hacrl as hacrl  # its fixture
from tests.web.client.test_client import said_json
from tests.web.runs.launch.test_memory_fit import small_pair

pytestmark = pytest.mark.django_db
JSON = {"content_type": "application/json"}


def bare(user, **changes) -> dict:
    """A launch request with no settings of its own."""
    request = launch_request(user, **changes)
    del request["algorithm"], request["training"]
    return request | changes


@pytest.mark.parametrize("name", [row["name"] for row in presets()])
def test_each_preset_is_launched_by_its_name_with_its_values(web, user, name):
    request = bare(user, preset=name, training={"steps": 3, "train_batch_size": 4, "mini_batch_size": 4})
    request["rollout"] = {"max_prompt_length": 16, "max_completion_length": 16}
    assert web.post("/api/v1/runs", request, **JSON).status_code == 201
    spec = Run.objects.get().spec
    [values] = [row["values"] for row in presets() if row["name"] == name]
    own = {"training.steps", "training.train_batch_size", "training.mini_batch_size"}
    own |= {"rollout.max_prompt_length", "rollout.max_completion_length"}
    stored = {path: spec[path.split(".")[0]][path.split(".")[1]] for path in values.keys() - own}
    switches = {"auto": None, "true": True}
    expected = {path: value for path, value in values.items() if path not in own}
    switch = "compute.gradient_checkpointing"
    expected |= {switch: switches[values[switch]]} if switch in values else {}
    open_ones = {path: stored[path] for path, value in expected.items() if value == ""}  # the algorithm's own default
    assert stored == expected | open_ones
    assert spec["training"]["steps"] == 3  # its own value counts


def test_study_preset_names_the_algorithm_and_an_own_one_keeps_its_own_settings(web, user):
    training = {"train_batch_size": 4, "mini_batch_size": 4}
    web.post("/api/v1/runs", bare(user, preset="study", training=training), **JSON)
    assert (Run.objects.get().algorithm, Run.objects.get().spec["training"]["num_iterations"]) == ("signed", 4)
    Run.objects.all().delete()
    paper = "paper-qwen3-4b-qwen3-4b-instruct"  # its alpha, 3, is no setting of GSPO
    request = bare(user, preset=paper, algorithm="gspo", training=training)
    request["rollout"] = {"max_prompt_length": 16, "max_completion_length": 16}
    assert web.post("/api/v1/runs", request, **JSON).status_code == 201
    algorithm = Run.objects.get().spec["algorithm"]
    assert (algorithm["name"], algorithm["beta"], "alpha" in algorithm) == ("gspo", 0.001, False)


def test_sweep_with_a_preset_stores_the_values_and_not_the_name(web, user):
    request = bare(user, preset="laptop", algorithms=["hacpo", "gspo"], seeds=[1])
    del request["seed"]
    request["rollout"] = {"max_prompt_length": 16, "max_completion_length": 16}
    assert web.post("/api/v1/sweeps/estimate", request, **JSON).status_code == 200
    assert web.post("/api/v1/sweeps", request, **JSON).status_code == 201
    stored = Sweep.objects.get().request
    assert "preset" not in stored
    assert (stored["training"]["learning_rate"], stored["training"]["lora_rank"]) == (4e-5, 16)
    assert [run.spec["training"]["steps"] for run in Run.objects.all()] == [30, 30]


def test_caution_of_a_preset_is_confirmed_by_it_but_not_that_of_an_own_value(web, user):
    assert web.post("/api/v1/runs", bare(user, preset="demo"), **JSON).status_code == 201  # delta .8
    [error] = web.post(
        "/api/v1/runs", bare(user, preset="demo", algorithm={"name": "hacpo", "delta": 0.9}), **JSON
    ).json()["errors"]
    assert (error["code"], error["field"]) == ("delta_above_half", "algorithm.delta")


@pytest.mark.parametrize("name", ["gpu-25gb", 3, None, ["laptop"], {}])
@pytest.mark.parametrize("path", ["runs", "sweeps", "runs/estimate"])
def test_unknown_preset_is_refused_with_the_names_of_all(web, user, name, path):
    request = bare(user, preset=name, training={"train_batch_size": 4, "mini_batch_size": 4})
    if path == "sweeps":
        request |= {"algorithms": ["gspo"], "seeds": [request.pop("seed")]}
    answer = web.post(f"/api/v1/{path}", request, **JSON)
    assert answer.status_code == 422
    [error] = [one for one in answer.json()["errors"] if one["field"] == "preset"]
    assert error["message"].startswith("There is no such preset. There are: gpu-24gb, gpu-80gb, paper-8x80gb, laptop, ")
    assert not Run.objects.exists()


def test_list_says_what_each_sets_and_needs_with_a_group_that_the_user_may_see(web, user):
    rows = web.get("/api/v1/presets").json()["items"]
    assert [row["name"] for row in rows] == [row["name"] for row in presets()]
    assert all(row["memory"] is None for row in rows)
    assert rows[0]["settings"]["training"]["lora_rank"] == 16
    assert rows[0]["settings"]["checkpoint"] == {"save_steps": None}
    group = small_pair(user)
    memory = {row["name"]: row["memory"] for row in web.get("/api/v1/presets", {"group": group.pk}).json()["items"]}
    assert memory["gpu-24gb"]["fits"]
    assert memory["gpu-24gb"]["text"].endswith("of 24.0 GiB (a GPU)")
    assert [name for name, one in memory.items() if one] == [preset.name for preset in MACHINE_PRESETS]
    others = make_group(make_user("stranger"))
    assert web.get("/api/v1/presets", {"group": others.pk}).status_code == 404


def test_command_line_lists_presets_and_launches_with_one(hacrl, user, tmp_path):
    request = bare(user)
    presets = {preset["name"]: preset["settings"] for preset in said_json(hacrl("presets", "--json"))}
    assert presets["laptop"]["compute"]["device"] == "cpu"
    words = ("--group", str(request["group"]), "--benchmark", str(request["benchmark"]), "--name", "swan")
    hacrl("launch", "--preset", "laptop", *words)
    assert Run.objects.get(name="swan").spec["training"]["learning_rate"] == 4e-5
    file = tmp_path / "run.json"
    file.write_text(json.dumps(request | {"name": "goose", "training": {"learning_rate": 1e-5}}))
    hacrl("launch", str(file), "--preset", "laptop")
    training = Run.objects.get(name="goose").spec["training"]
    assert (training["learning_rate"], training["steps"]) == (1e-5, 30)
    assert "Name a file, or a preset" in hacrl("launch", status=1)
