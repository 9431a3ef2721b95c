"""The registry over JSON: the same rules as the forms, one error shape, and no crash on odd requests."""

import json

import pytest
from django.conf import settings
from django.test import Client

from hacrl_web.registry.language_models import groups
from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from tests.support.web.registry_help import (
    PASSED,
    answer_inspections,
    jsonl,
    make_model,
    make_user,
    model_folder,
    written_rows,
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


def test_refused_model_names_its_field(client, ada):
    (error,) = errors(client.post("/api/v1/models", {"location": "/etc"}, content_type=JSON))
    assert (error["code"], error["field"]) == ("outside", "location")
    assert written_rows() == 0


def test_refused_group_names_the_agent(client, ada):
    model = make_model(ada, "qwen")
    agents = [{"model": model.pk, "name": "A"}, {"model": model.pk, "name": "A", "learning_rate": "nan"}]
    found = errors(client.post("/api/v1/groups", {"name": "g", "agents": agents}, content_type=JSON))
    assert [error["field"] for error in found] == ["agents.1.learning_rate", "agents.1.name"]


def test_refused_benchmark_names_the_line(client, ada, settings):
    file = jsonl([*['{"question": "q", "answer": "1"}'] * 4, "{"])
    (error,) = errors(client.post("/api/v1/benchmarks", {"name": "sums", "file": file}))
    assert error["field"] == "file"
    assert "line 5" in error["message"]
    assert written_rows() == 0
    assert list(settings.BENCHMARKS_DIR.iterdir()) == []


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b"", b"null", b"7", b'"x"', b"\xff\xfe", b"{", b"[" * 100_000, b'{"location": NaN}',
     b'{"location": null}',
     b'{"location": 7}', b'{"location": ["/etc"]}', b'{"location": "\\ud800"}', b'{"location": "\\u0000"}',
     b'{"location": {}}',
     b'{"location": "/x", "kind": "hub2"}', b'{"location": "/x", "owner": 1}',
     b'{"location": "/x", "trust_remote_code": true}',
     b'{"location": "/x", "kind": "hub", "revision": "--x"}', b'{"location": "' + b"a" * 1_000_000 + b'"}'],
    ids=lambda body: repr(body[:40]),
)  # fmt: skip
@pytest.mark.parametrize("kind", ["models", "groups"])
def test_odd_bodies_are_refused_and_write_nothing(client, ada, kind, body):
    response = client.post(f"/api/v1/{kind}", body, content_type=JSON)
    errors(response, response.status_code if response.status_code == 400 else 422)
    assert written_rows() == 0


def test_a_body_of_fifty_megabytes_is_refused(client, ada):
    response = client.post("/api/v1/models", b'{"location": "' + b"a" * 50_000_000 + b'"}', content_type=JSON)
    assert 400 <= response.status_code < 500
    assert written_rows() == 0


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/xml", "multipart/form-data", "x", "application/json; charset=utf-99"]
)
def test_wrong_content_types_are_no_crash(client, ada, content_type):
    for kind in ("models", "groups", "benchmarks"):
        response = client.generic("POST", f"/api/v1/{kind}", b"<a/>", content_type=content_type)
        assert 400 <= response.status_code < 500


def test_multipart_body_without_a_boundary_is_refused_in_one_line_of_the_log(ada, caplog):
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    client.cookies[settings.CSRF_COOKIE_NAME] = "a" * 32
    response = client.generic("POST", "/api/v1/models", b"x", content_type="multipart/form-data")
    assert response.status_code == 400
    assert not [record for record in caplog.records if record.exc_info]


def test_unknown_key_is_named(client, ada):
    (error,) = errors(client.post("/api/v1/models", {"location": "/x", "trust_remote_code": True}, content_type=JSON))
    assert error["field"] == "trust_remote_code"


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


@pytest.mark.parametrize(
    "query",
    [{"limit": 10**9}, {"limit": 0}, {"limit": -1}, {"limit": "x"}, {"limit": "nan"}, {"offset": 0},
     {"cursor": "x"}, {"cursor": "W251bGwsbnVsbF0"}, {"cursor": "WyIyMDI2LTAxLTAxIiwxZTk5OV0"},
     {"limit": "1" * 5000}],
    ids=lambda query: str(query)[:40],
)  # fmt: skip
def test_odd_pages_are_refused(client, ada, query):
    for kind in ("models", "groups", "benchmarks"):
        errors(client.get(f"/api/v1/{kind}", query))


def test_queries_never_reach_the_database_as_lookups(client, ada):
    make_model(ada, "mine")
    theirs = make_model(make_user("bob"), "theirs")
    for query in (
        {"owner": theirs.owner_id},
        {"owner__username": "bob"},
        {"order_by": "owner__password"},
        {"name__contains": "t"},
    ):
        (error,) = errors(client.get("/api/v1/models", query))
        assert (error["code"], error["field"]) == ("unknown_parameter", next(iter(query)))
        assert error["message"].endswith("it has cursor, limit.")


def test_pages_of_a_list_join_without_gap(client, ada):
    for number in range(5):
        make_model(ada, f"m{number}")
    first = client.get("/api/v1/models", {"limit": 3}).json()
    make_model(ada, "m5 came in between").delete()
    second = client.get("/api/v1/models", {"limit": 3, "cursor": first["next"]}).json()
    assert first["count"] == second["count"] == 5
    assert second["next"] is None
    assert [item["name"] for item in first["items"] + second["items"]] == ["m4", "m3", "m2", "m1", "m0"]


def test_other_users_rows_are_404(client, ada, monkeypatch):
    bob = make_user("bob")
    model = make_model(bob, "theirs")
    group = groups.create_group(bob, name="theirs", agents=[{"model": model.pk}])
    benchmark = Benchmark.objects.create(owner=bob, name="theirs", train_path="/x")
    for kind, row in (("models", model), ("groups", group), ("benchmarks", benchmark)):
        errors(client.get(f"/api/v1/{kind}/{row.pk}"), 404)
        assert client.get(f"/api/v1/{kind}").json() == {"items": [], "count": 0, "next": None}
    body = {"name": "g", "agents": [{"model": model.pk}]}
    (error,) = errors(client.post("/api/v1/groups", body, content_type=JSON), 404)
    assert error["field"] == "agents.0.model"


@pytest.mark.parametrize("row_id", ["0", "9" * 30, "-1", "x", "1.5", "%00", "１"])
def test_odd_ids_are_404(client, ada, row_id):
    for kind in ("models", "groups", "benchmarks"):
        assert client.get(f"/api/v1/{kind}/{row_id}").status_code == 404


def test_odd_verbs_are_405(client, ada):
    for kind in ("models", "groups", "benchmarks"):
        for method in (client.put, client.patch, client.delete):
            assert method(f"/api/v1/{kind}").status_code == 405


def test_visitors_get_401_and_cookies_without_csrf_are_refused(ada):
    visitor = Client()
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ada)
    for kind in ("models", "groups", "benchmarks"):
        errors(visitor.get(f"/api/v1/{kind}"), 401)
        errors(visitor.get(f"/api/v1/{kind}/1"), 401)
        assert visitor.post(f"/api/v1/{kind}", {"name": "x"}, content_type=JSON).status_code == 401
        assert strict.get(f"/api/v1/{kind}").status_code == 200
        assert strict.post(f"/api/v1/{kind}", {"name": "x"}, content_type=JSON).status_code == 403
    assert written_rows() == 0
    assert not LanguageModel.objects.exists()


def test_true_is_no_model_and_a_hundred_thousand_agents_are_refused_at_once(client, ada):
    body = {"name": "g", "agents": [{"model": True}]}
    assert errors(client.post("/api/v1/groups", body, content_type=JSON))[0]["field"] == "agents.0.model"
    body["agents"] = [{"model": 1}] * 100_000
    assert errors(client.post("/api/v1/groups", body, content_type=JSON))[0]["field"] == "agents"
    assert not AgentGroup.objects.exists()
