"""What cannot work with real models is told in one sentence before anything is queued: by form, API and command."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache

from hacrl_web.registry.base.children import HUB_ACCOUNT, ChildResult
from hacrl_web.registry.hub_tokens.service import set_hub_token
from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.runs.launch.presets import MACHINE_PRESETS, sections_of
from hacrl_web.runs.models import Run
from tests.support.gated_hub import COMMIT, GATED, NO_ACCESS, GatedHub, gated_hub
from tests.support.web.factories import launch_request, make_group
from tests.support.web.page_text import field_of
from tests.support.web.registry_help import field_error, jsonl, written_rows
from tests.web.client.test_client import hacrl as hacrl  # its fixture
from tests.web.runs.launch.test_memory_fit import GIB, group_of, host

pytestmark = pytest.mark.django_db
DOORS = ("form", "api", "command")
JSON = {"content_type": "application/json"}


@pytest.fixture
def hub(tmp_path, monkeypatch, user) -> Any:
    """The hub of the inspecting child, which is a real one; the user has a token without access to its model."""
    folder = tmp_path / "gated"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with gated_hub(folder) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.address)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(HUB_ACCOUNT, "run", lambda *_: ChildResult(b'{"name": "bob"}', 0, False))
        set_hub_token(user, NO_ACCESS)
        cache.clear()  # of what other tests heard of a hub
        yield made
        cache.clear()


def group_of_gated(user: Any) -> AgentGroup:
    """A group of the gated model, which somebody with access has registered."""
    group = make_group(user)
    LanguageModel.objects.filter(agents__group=group).update(kind="hub", location=GATED, revision=COMMIT)
    return group


@pytest.fixture
def told(web, hacrl, tmp_path, settings) -> Any:
    """What is said of a model, a benchmark or a run at one of the doors."""
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]

    def of_api(response: Any, field: str) -> str:
        assert response.status_code == 422
        [error] = response.json()["errors"]
        assert error["field"] == field
        return str(error["message"])

    def of_model(door: str, hub_id: str) -> str:
        body = {"kind": "hub", "location": hub_id}
        if door == "form":
            return field_error(web.post("/models/new", body | {"name": "", "revision": ""}), "location")
        if door == "api":
            return of_api(web.post("/api/v1/models", body, **JSON), "location")
        return hacrl("models", "add", hub_id, "--hub", status=1)

    def of_benchmark(door: str, template: str) -> str:
        fields = {"name": "sums", "verifier": "exact", "held_out_fraction": "0.2", "prompt_template": template}
        if door == "form":
            second_step = web.post("/benchmarks/new", {"file": jsonl()})["Location"]
            columns = {"question_field": "question", "answer_field": "answer", "answer_from": "whole"}
            return field_error(web.post(second_step, fields | columns), "prompt_template")
        if door == "api":
            return of_api(web.post("/api/v1/benchmarks", fields | {"file": jsonl()}), "prompt_template")
        file = tmp_path / "sums.jsonl"
        file.write_bytes(jsonl().read())
        words = [word for name, value in fields.items() if name != "name" for word in ("--set", f"{name}={value}")]
        return hacrl("benchmarks", "add", str(file), "--name", "sums", *words, status=1)

    def of_run(door: str, request: dict[str, Any], field: str) -> str:
        if door == "form":
            sections = {name: values for name, values in request.items() if isinstance(values, dict)}
            pairs = [(f"{name}.{key}", one) for name, values in sections.items() for key, one in values.items()]
            flat = {path: "" if one is None else one for path, one in pairs}
            page = web.post("/runs/new", flat | {name: one for name, one in request.items() if name not in sections})
            assert page.status_code == 422
            return field_of(page, field)
        if door == "api":
            return of_api(web.post("/api/v1/runs", request, **JSON), field)
        file = tmp_path / "run.json"
        file.write_text(json.dumps(request))
        return hacrl("launch", str(file), status=1)

    doors: dict[str, Callable[..., str]] = {"model": of_model, "benchmark": of_benchmark, "run": of_run}

    def ask(kind: str, door: str, *arguments: Any) -> str:
        text = doors[kind](door, *arguments)
        assert not Run.objects.exists()
        assert "Traceback" not in text
        return re.sub(r"\s+", " ", html.unescape(text))

    return ask


@pytest.mark.slow  # the child loads the hub's client
@pytest.mark.parametrize("door", DOORS)
def test_token_without_access_to_a_gated_model(hub: GatedHub, told, door):
    text = told("model", door, GATED)
    assert f"{GATED} is gated: accept its licence at {hub.address}/{GATED} with the account of your Hub token" in text
    assert NO_ACCESS not in text
    assert not LanguageModel.objects.exists()


@pytest.mark.slow  # the child loads the hub's client
@pytest.mark.parametrize("door", DOORS)
def test_run_of_a_user_without_access_to_a_gated_model_that_another_registered(hub: GatedHub, told, user, door):
    text = told("run", door, launch_request(user, group=group_of_gated(user).pk), "group")
    assert f"{GATED} is gated: accept its licence at {hub.address}/{GATED} with the account of your Hub token" in text
    assert NO_ACCESS not in text


@pytest.mark.full  # 10 s without an answer
@pytest.mark.parametrize("door", DOORS)
def test_hub_that_hangs(hub: GatedHub, told, door):
    hub.hangs.set()
    text = told("model", door, GATED)
    assert f"Could not reach the hub for {GATED} (within 10 s, 1 try; " in text
    assert "check the connection, or choose a local folder." in text
    assert not LanguageModel.objects.exists()


@pytest.mark.parametrize("door", DOORS)
def test_template_with_an_unknown_field(told, folder, door):
    before = written_rows()
    assert "There is no field {hint}, only {question}" in told("benchmark", door, "{question} {hint}")
    assert written_rows() == before


@pytest.mark.parametrize("door", DOORS)
def test_preset_that_does_not_fit(told, user, door):
    host("one", 64 * GIB, 24 * GIB)
    request = launch_request(user, group=group_of(user, parameters=9_000_000_000).pk)
    preset = MACHINE_PRESETS[0]
    named = sections_of(preset.values) if door == "form" else {"preset": preset.name}
    text = told("run", door, request | {"training": {}} | named, "compute.device")
    assert re.search(r"On host one: The run needs about 3\d\.\d GiB on a GPU, which has 24\.0 GiB\. ", text)


@pytest.mark.parametrize("door", DOORS)
def test_budget_smaller_than_one_prompt(told, user, door):
    request = launch_request(user, rollout={"max_prompt_length": 100, "max_completion_length": 50})
    request["training"]["tokens_per_micro_batch"] = 99
    field = "training" if door == "api" else "training.tokens_per_micro_batch"
    text = told("run", door, request, field)
    assert "tokens_per_micro_batch 99 is less than one prompt and answer (150 tokens, " in text
    assert "raise it, or set it to 0" in text
