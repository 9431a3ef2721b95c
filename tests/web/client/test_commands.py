"""Commands for existing runs, sweeps, queue and evaluations; `hacrl api`; completion."""

from __future__ import annotations

import functools
import json
from unittest import mock

import httpx2
import pytest
import typer.main
from django.utils import timezone

from hacrl_web.accounts.models import User
from hacrl_web.alerts.models import Alert
from hacrl_web.client import command
from hacrl_web.client.api import Client
from hacrl_web.client.main import app
from hacrl_web.insight.evaluations import new_evaluation
from hacrl_web.registry.base.children import JUDGE, ChildResult
from hacrl_web.registry.models import Judge
from hacrl_web.runs.models import Host, Run
from tests.support.web.factories import launch_request, make_run, metrics
from tests.web.client.test_client import HOSTILE, said_json, stored
from tests.web.client.test_client import hacrl as hacrl  # its fixture
from workers.contract.events import Log

pytestmark = pytest.mark.django_db


def answering(answer):
    """Within this context `answer` replaces the installation."""
    connected = functools.partial(Client, transport=httpx2.MockTransport(answer))
    return mock.patch.object(command, "Client", connected)


def test_api_follows_filters_of_the_path_and_names_what_it_cannot_do(hacrl, user, tmp_path):
    first, second = make_run(user, name="first"), make_run(user, name="second")
    hacrl("tag", "second", "--add", "a b")
    for words in (
        ("/runs?tag=a%20b", "--all"),
        ("/runs", "-q", "tag=a b", "--all"),
        ("/runs?limit=1", "-q", "tag=a b"),
    ):
        found = said_json(hacrl("api", "GET", *words))
        assert [run["name"] for run in (found if isinstance(found, list) else found["items"])] == ["second"]
    assert "algorithm:" in hacrl("api", "GET", f"/runs/{first.pk}/config.yaml")
    assert said_json(hacrl("api", "GET", "/boards", "--all")) == []
    path = f"/runs/{second.pk}/events"
    assert f"--all cannot follow {path}" in hacrl("api", "GET", path, "--all", status=1)
    assert "/me cannot be changed with PUT" in hacrl("api", "PUT", "/me", "-d", "{}", status=1)
    binary = tmp_path / "picture"
    binary.write_bytes(bytes(range(256)))
    assert "--data is not UTF-8 text" in hacrl("api", "POST", "/runs", "-d", f"@{binary}", status=1)
    assert "--data is not UTF-8 text" in hacrl("api", "POST", "/runs", "-d", r'"\ud800"', status=1)
    assert "NaN is not a finite number" in hacrl("api", "POST", "/runs", "-d", '{"seed": NaN}', status=1)


def test_one_or_many_runs_are_tagged_archived_and_deleted(hacrl, user, monkeypatch):
    runs = [stored(make_run(user, name=name), metrics(1, capability=0.5)) for name in ("swan", "goose")]
    going = make_run(user, name="going")
    hacrl("tag", "swan", "goose", "--add", "Old", "-a", "draft")
    hacrl("tag", "swan", "--remove", "DRAFT")
    hacrl("tag", "swan", status=1)
    assert "no comma" in hacrl("tag", "going", "--add", "a,b", status=1)
    assert [one["name"] for one in said_json(hacrl("runs", "--tag", "draft", "--json"))] == ["goose"]
    assert [one["name"] for one in said_json(hacrl("runs", "--search", "goo", "--json"))] == ["goose"]
    assert hacrl("runs", "--tag", "old", "--ids").split() == [str(run.pk) for run in reversed(runs)]
    labels = f"/runs/{runs[0].pk}/labels"
    hacrl("api", "put", labels, "-d", "-", stdin=json.dumps({"notes": "first\nsecond"}))
    assert said_json(hacrl("api", "GET", labels)) == {"tags": ["old"], "notes": "first\nsecond"}
    assert "second" in hacrl("show", "swan")

    # The one that goes on refuses, and does not keep the other from it.
    refused = hacrl("archive", "going", "swan", status=1)
    assert "going is queued: stop it first" in refused
    assert "Archived: swan" in refused
    assert "swan" not in hacrl("runs")
    assert "swan" in hacrl("runs", "--archived")
    assert said_json(hacrl("api", "POST", f"/runs/{runs[0].pk}/unarchive"))["archived_at"] is None

    shown = hacrl("delete", "swan", "goose", status=1)
    assert "2 runs, together" in shown
    assert "--yes does it without asking" in shown
    monkeypatch.setattr(command, "can_ask", lambda: True)
    assert "Nothing was done" in hacrl("delete", "swan", stdin="n\n", status=1)
    lost = said_json(hacrl("delete", "swan", "goose", "--dry-run", "--json"))
    assert [one["name"] for one in lost] == ["swan", "goose"]
    assert min(one["num_rows"] for one in lost) >= 1
    assert Run.objects.count() == 3
    hacrl("delete", "goose", stdin="y\n")
    hacrl("delete", "swan", "nothing", "--yes", status=4)  # which of them is not there is said before anything is lost
    assert Run.objects.filter(name="swan").exists()
    hacrl("delete", str(runs[0].pk), str(going.pk), "--yes", status=1)
    assert list(Run.objects.values_list("name", flat=True)) == ["going"]


def test_control_characters_of_a_name_never_reach_the_terminal(hacrl, user):
    run = make_run(user)
    Run.objects.update(name=f"evil {HOSTILE}")  # as an older version, or somebody with the database, wrote it
    labels = ["show", str(run.pk)], ["tag", str(run.pk), "-a", "x"], ["runs"]
    refused = ["archive", str(run.pk)], ["delete", str(run.pk), "-y"]
    for words, status in [*((words, 0) for words in labels), *((words, 1) for words in refused)]:
        told = hacrl(*words, status=status)  # which looks for escapes itself
        assert "\u202e" not in told
        assert "evil ␛]0;owned␇" in told


def test_sweep_is_controlled_as_one(hacrl, user, tmp_path):
    made = make_run(user)
    request = launch_request(user, name="pair") | {
        "group": made.group.pk,
        "algorithms": ["gspo", "hacpo"],
        "seeds": [1],
    }
    del request["algorithm"], request["seed"]
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(request))
    hacrl("launch", str(file))
    (sweep,) = said_json(hacrl("sweeps", "--json"))
    path = f"/sweeps/{sweep['id']}"
    hacrl("api", "POST", f"{path}/seeds", "-d", '{"seeds": [2]}')
    assert "4 queued" in hacrl("sweeps", "show", "pair")
    launched = sweep["created_at"]  # 2026-11-26T01:28:14.381Z
    assert f"{launched[:10]} {launched[11:19]} UTC" in hacrl("sweeps")
    assert len(said_json(hacrl("api", "POST", f"{path}/pause", "-d", '{"why": "later"}'))["changed"]) == 4
    assert len(said_json(hacrl("api", "POST", f"{path}/resume"))["changed"]) == 4
    assert len(said_json(hacrl("sweeps", "stop", "pair", "--json"))["changed"]) == 4
    hacrl("api", "POST", f"{path}/rename", "-d", '{"name": "couple"}')
    assert len(said_json(hacrl("api", "POST", f"{path}/retry", "-d", '{"state": "stopped"}'))["changed"]) == 4
    hacrl("sweeps", "stop", "couple")
    hacrl("api", "POST", f"{path}/delete")
    assert Run.objects.get() == made


def test_any_operation_is_called_by_its_address(hacrl, user, tmp_path):
    User.objects.filter(pk=user.pk).update(is_staff=True)
    Host.objects.create(name="node-3", last_seen=timezone.now())
    body = tmp_path / "project.json"
    body.write_text('{"name": "vision"}')
    project = said_json(hacrl("api", "POST", "/projects", "-d", f"@{body}"))
    path = f"/projects/{project['id']}"
    assert said_json(hacrl("api", "POST", f"{path}/rename", "-d", '{"name": "seeing"}'))["name"] == "seeing"
    hacrl("api", "POST", "/hosts/drain", "-d", '{"name": "node-3", "drain": "finish", "why": "new driver"}')
    assert said_json(hacrl("api", "GET", "/hosts"))["items"][0]["drain_reason"].endswith(": new driver")
    for name in ("one", "two", "three"):
        make_run(user, name=name)
    rows = said_json(hacrl("api", "GET", "/runs", "--all", "-q", "limit=1", "-q", "state=queued"))
    assert sorted(row["name"] for row in rows) == ["one", "three", "two"]

    assert "not one of GET" in hacrl("api", "PATCH", "/runs", status=1)
    assert "not JSON" in hacrl("api", "POST", "/projects", "-d", "{", status=1)
    assert "not NAME=VALUE" in hacrl("api", "GET", "/runs", "-q", "state", status=1)
    assert "belongs to GET" in hacrl("api", "DELETE", "/runs/1", "--all", status=1)
    hacrl("api", "GET", "/nothing", status=4)
    token = said_json(hacrl("api", "GET", "/tokens"))["items"][0]
    hacrl("api", "POST", f"/tokens/{token['id']}/revoke")
    assert "revoked" in hacrl("api", "GET", "/tokens", status=3)


def test_api_prints_the_text_of_a_file_and_of_no_other_kind(hacrl, user):
    run = stored(make_run(user, name="swan"), Log(message="hello"))
    assert "hello" in hacrl("api", "GET", f"/runs/{run.pk}/log.txt")
    proxy = httpx2.Response(200, html="<html>")
    archive = httpx2.Response(200, content=b"PK\xff", headers={"Content-Disposition": "attachment"})
    for answer, status, message in ((proxy, 5, "not JSON"), (archive, 1, "not one of text")):
        with answering(lambda _, answer=answer: answer):
            assert message in hacrl("api", "GET", "/x", status=status)


def test_api_sends_a_query_with_every_method(hacrl):
    requests = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append((request.method, request.url.query, request.content))
        return httpx2.Response(200, json={"name": "old"}, headers={"ETag": "1"})

    with answering(answer):
        for method in ("GET", "POST", "DELETE", "PUT"):
            hacrl("api", method, "/x", "-q", "path=a b", "-q", "path=&", "-d", '{"path": 1}')
    query = b"path=a+b&path=%26"
    assert [(method, query) for method in ("GET", "POST", "DELETE", "GET", "PUT")] == [one[:2] for one in requests]
    assert json.loads(requests[-1][2]) == {"name": "old", "path": 1}


def test_queue_checkpoints_scores_and_alerts(hacrl, user):
    make_run(user, name="first")
    make_run(user, name="second")
    assert "only staff" in hacrl("queue", "second", "--priority", "3", status=1)
    assert said_json(hacrl("queue", "second", "--place", "1", "--json"))["place_in_queue"] == 1
    assert "second" in hacrl("queue", "second", "--place", "2")
    assert "No checkpoint is here" in hacrl("checkpoints", "first")
    hacrl("extend", "first", "--step", "3", "--steps", "5", status=4)
    assert "not evaluated yet" in hacrl("scores", "first")
    first = Run.objects.get(name="first")
    words = [
        "--benchmark",
        first.benchmark.name,
        "--group",
        first.group.name,
        "--max-questions",
        "7",
        "--max-tokens",
        "33",
        *("--num-samples", "2", "--temperature", "0.5", "--seed", "6"),
        "--name",
        "asked",
    ]
    made = Run.objects.get(pk=said_json(hacrl("evaluate", *words, "--json"))["id"])
    assert (made.name, made.benchmark, made.group) == ("asked", first.benchmark, first.group)
    assert made.spec["evaluation"]["max_questions"] == 7
    assert (made.spec["evaluation"]["num_samples"], made.spec["evaluation"]["temperature"], made.seed) == (2, 0.5, 6)
    assert made.spec["rollout"]["max_completion_length"] == 33
    assert "missing" in hacrl("evaluate", "--benchmark", str(first.benchmark_id), status=1)
    assert "No alert is open" in hacrl("alerts", "first")
    Alert.objects.create(
        run=Run.objects.get(name="first"), kind="split", agent="A", attempt=1, number=0.1, text="A falls.",
        raised_seq=1, raised_step=7, raised_at=timezone.now(),
    )  # fmt: skip
    assert "A falls." in hacrl("alerts")


def test_tab_offers_runs_and_nothing_that_a_shell_would_evaluate(hacrl, user, monkeypatch):
    run = make_run(user, name="swan-1")
    make_run(user, name="swan $(touch x)")
    assert command.complete_run("swan") == ["swan-1"]
    assert command.complete_run(str(run.pk)[:4]) == [str(run.pk)[:8]]
    monkeypatch.setenv("HACRL_TOKEN", "hacrl_wrong")
    assert command.complete_run("") == []


def test_number_zero_is_sent_and_what_is_left_out_is_not(hacrl):
    bodies = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(
            201, json={"id": "1", "name": "a", "state": "queued", "desired_state": "run", "url": "/"}
        )

    with answering(answer):
        hacrl("evaluate", "--benchmark", "2", "--model", "3", "--seed", "0", "--temperature", "0")
    assert bodies == [{"benchmarks": [2], "models": [3], "seed": 0, "temperature": 0}]


def test_evaluate_has_an_option_for_each_key_of_the_request():
    spelling = {"models": "model", "benchmarks": "benchmark", "max_completion_length": "max_tokens"}
    options = {option.name for option in typer.main.get_command(app).commands["evaluate"].params}
    assert options == {spelling.get(key, key) for key in new_evaluation.KEYS} | {"json"}


TRIED = {"version": "0", "results": [{"reward": 0.9, "reason": "score 9", "parts": {}, "seconds": 1, "cost": 0}]}


def test_judge_is_added_changed_listed_and_tried(hacrl, user, settings, tmp_path):
    settings.JUDGES_DIR, settings.JUDGE_ALLOW = tmp_path / "judges", ["127.0.0.1:8000"]
    file = tmp_path / "helpful.yaml"
    file.write_text("address: http://127.0.0.1:8000/v1\nmodel: grader\n")
    assert "Judge" in hacrl("judges", "add", str(file))
    first = Judge.objects.get()
    file.write_text("address: http://127.0.0.1:8000/v1\nmodel: other\n")
    assert "version" in hacrl("judges", "add", str(file))
    assert Judge.objects.get().version != first.version
    [row] = said_json(hacrl("judges", "--json"))
    assert (row["name"], row["settings"]["model"], row["has_key"]) == ("helpful", "other", False)
    answer = ChildResult(json.dumps(TRIED).encode(), 0, False)
    with mock.patch.object(JUDGE, "run", return_value=answer):
        assert hacrl("judges", "try", "helpful", "--response", "42").strip() == "0.9: score 9"
    for text in ("[1]", "a: [", "\x00"):
        file.write_text(text)
        assert (
            "cannot be read as YAML" in (said := hacrl("judges", "add", str(file), status=1)) or "no settings" in said
        )
