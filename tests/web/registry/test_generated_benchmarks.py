"""Benchmarks of reasoning-gym's generators, by page and API; the package is a stand-in."""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path

import pytest

from hacrl_web.registry.base import children
from hacrl_web.registry.benchmarks import views
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.launch.check import data_values
from tests.support.web.registry_help import field_error
from workers.contract.generators.generator import INSTALL

pytestmark = pytest.mark.django_db
STAND_IN = Path(__file__).resolve().parents[2] / "support" / "workers" / "generators"
LOCATION = "chain_sum?level=1&seed=3&train=12&held_out=5"
WRITTEN = "chain_sum?level=1&seed=3&train=12&held_out=5"


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    variables = children._environment()
    path = f"{variables['PYTHONPATH']}{os.pathsep}{STAND_IN}"
    monkeypatch.setattr(children, "_environment", lambda: variables | {"PYTHONPATH": path})


def fetch(client, **fields):
    body = {"kind": "generator", "location": LOCATION, **fields}
    return client.post("/api/v1/benchmarks/fetch", json.dumps(body), content_type="application/json")


def test_page_and_api_make_the_same_questions_and_run_with_their_generator(client, ada):
    fields = {"location": "chain_sum", "level": "1", "seed": "3", "train": "12", "held_out": "5", "more": ""}
    answer = client.post("/benchmarks/new/fetch", fields)
    assert answer.status_code == 302, answer.content.decode()
    page = client.get(answer["Location"])
    values = {name: page.context["form"][name].value() or "" for name in page.context["form"].fields}
    assert values["verifier"] == "reasoning_gym"
    assert "<answer>" in values["prompt_template"]
    values["prompt_template"] = values["prompt_template"].replace("\n", "\r\n")  # as a browser sends it
    made = client.post(answer["Location"], values | {"name": "by page"})
    assert made.status_code == 302, made.content.decode()
    body = fetch(client, name="by API").json()
    assert body["facts"]["generator"] == WRITTEN
    assert body["facts"]["notes"] == []
    assert (body["num_train"], body["num_held_out"]) == (12, 5)
    by_page, by_api = Benchmark.objects.get(name="by page"), Benchmark.objects.get(name="by API")
    assert by_page.questions_sha == by_api.questions_sha
    assert data_values(by_page)["generator"] == WRITTEN
    assert escape(WRITTEN) in client.get(by_page.get_absolute_url()).content.decode()
    copy = client.post(f"/api/v1/benchmarks/{by_api.pk}/copy", "{}", content_type="application/json").json()
    assert copy["facts"]["generator"] == WRITTEN


def test_what_cannot_be_made_is_refused_at_its_field_and_leaves_nothing(client, ada):
    for location, reason in (
        ("countdown", "runs the text of a response"),
        ("chain_sum?wrong=1", "has no setting wrong"),
        ("chain_sum?train=x", "train must be a whole number"),
        ("", "is written as"),
    ):
        answer = fetch(client, location=location)
        assert answer.status_code == 422, answer.content
        assert [(one["field"], reason in one["message"]) for one in answer.json()["errors"]], answer.json() == [
            ("location", True)
        ]
    refused = fetch(client, verifier="math").json()["errors"]
    assert [(one["field"], "verifier reasoning_gym" in one["message"]) for one in refused] == [("verifier", True)]
    assert not Benchmark.objects.exists()
    page = client.post("/benchmarks/new/fetch", {"location": "chain_sum", "seed": "-1", "more": ""})
    assert page.status_code == 422
    assert "seed must be a whole number" in field_error(page, "generator_location")


def test_page_says_what_to_install(client, ada, monkeypatch):
    monkeypatch.setattr(views, "find_spec", lambda name: None)
    assert INSTALL in client.get("/benchmarks/new").content.decode()
    monkeypatch.setattr(views, "find_spec", lambda name: True)
    assert INSTALL not in client.get("/benchmarks/new").content.decode()
