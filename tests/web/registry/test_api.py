"""The registry over JSON: the same rules as the forms, one error shape, and no crash on odd requests."""

import json

import pytest
from django.conf import settings
from django.test import Client

from hacrl_web.registry.models import AgentGroup
from tests.support.web.registry_help import (
    PASSED,
    answer_inspections,
    jsonl,
    make_model,
    model_folder,
)

pytestmark = pytest.mark.django_db
JSON = "application/json"


@pytest.fixture
def ada(ada, tmp_path, settings):
    settings.MODEL_ROOTS = [tmp_path / "models"]
    (tmp_path / "models").mkdir()
    return ada


def errors(response, status=422) -> list[dict]:
    """The errors, after a look at their shape."""
    assert response.status_code == status, response.content
    body = response.json()
    assert set(body) == {"error", "errors"}
    assert body["error"] == body["errors"][0]
    for error in body["errors"]:
        assert set(error) == {"code", "message", "field"}
        assert isinstance(error["code"], str)
        assert isinstance(error["message"], str)
    return body["errors"]


def test_model_group_and_benchmark_are_made_and_read_back(client, ada, settings, monkeypatch):
    answer_inspections(monkeypatch, PASSED, PASSED)
    models = []
    for name in ("a", "b"):
        location = str(model_folder(settings.MODEL_ROOTS[0], name))
        response = client.post("/api/v1/models", {"location": location}, content_type=JSON)
        assert response.status_code == 201
        models.append(response.json())
    assert [model["name"] for model in models] == ["a", "b"]
    assert models[0]["num_parameters"] == 103_424
    agents = [{"model": models[0]["id"], "name": "A", "learning_rate": 4e-4}, {"model": models[1]["id"]}]
    response = client.post("/api/v1/groups", {"name": "pair", "agents": agents}, content_type=JSON)
    assert response.status_code == 201
    group = response.json()
    assert [(agent["name"], agent["learning_rate"]) for agent in group["agents"]] == [("A", 4e-4), ("b", None)]
    response = client.post("/api/v1/benchmarks", {"name": "sums", "verifier": "exact", "file": jsonl()})
    assert response.status_code == 201
    benchmark = response.json()
    assert (benchmark["num_train"], benchmark["num_held_out"]) == (9, 1)
    for kind, row in (("models", models[1]), ("groups", group), ("benchmarks", benchmark)):
        assert client.get(f"/api/v1/{kind}/{row['id']}").json() == row
        listed = client.get(f"/api/v1/{kind}").json()
        assert row in listed["items"]
        assert listed["count"] == len(listed["items"])


def test_multipart_body_without_a_boundary_is_refused_in_one_line_of_the_log(ada, caplog):
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    client.cookies[settings.CSRF_COOKIE_NAME] = "a" * 32
    response = client.generic("POST", "/api/v1/models", b"x", content_type="multipart/form-data")
    assert response.status_code == 400
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    "agents",
    [[], "x", None, {}, [1], [None], [[]], [{}], [{"model": "x"}], [{"model": True}], [{"model": 1.5}],
     [{"model": 10**30}],
     [{"model": 1}] * 1000, [{"model": 1, "group": 2}], [{"model": 1, "learning_rate": [1]}], [{"model": 1,
     "learning_rate": 10**400}],
     [{"model": 1, "learning_rate": True}]],
    ids=lambda agents: str(agents)[:40],
)  # fmt: skip
def test_odd_agents_are_refused(client, ada, agents):
    body = json.dumps({"name": "g", "agents": agents})
    response = client.post("/api/v1/groups", body, content_type=JSON)
    errors(response, 404 if response.status_code == 404 else 422)
    assert AgentGroup.objects.count() == 0


def test_pages_of_a_list_join_without_gap(client, ada):
    for number in range(5):
        make_model(ada, f"m{number}")
    first = client.get("/api/v1/models", {"limit": 3}).json()
    make_model(ada, "m5 came in between").delete()
    second = client.get("/api/v1/models", {"limit": 3, "cursor": first["next"]}).json()
    assert first["count"] == second["count"] == 5
    assert second["next"] is None
    assert [item["name"] for item in first["items"] + second["items"]] == ["m4", "m3", "m2", "m1", "m0"]


@pytest.mark.parametrize("row_id", ["0", "9" * 30, "-1", "x", "1.5", "%00", "１"])
def test_odd_ids_are_404(client, ada, row_id):
    for kind in ("models", "groups", "benchmarks"):
        assert client.get(f"/api/v1/{kind}/{row_id}").status_code == 404
