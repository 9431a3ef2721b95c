"""What nobody should send, at every door: forms, API, sockets, the command line. No 500, nothing stored, a reason told.

The inputs stand in hostile_inputs.py. Each test tries one class of them and tells how many (tests/conftest.py adds them
up). Uploads, model files and what models write are tried where they are read, by test_benchmarks, test_question_files,
test_inspect and test_rollouts.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.sessions.models import Session
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from typer.testing import CliRunner

from hacrl_web.accounts.models import LoginTry
from hacrl_web.client import main
from hacrl_web.registry.benchmarks.uploads import stage
from tests.support.web.factories import launch_request, make_run
from tests.support.web.hostile_inputs import (
    AUTHORIZATIONS,
    BODIES,
    COMMANDS,
    ELSEWHERE,
    FOLDERS,
    FRAMES,
    HUB_IDS,
    NAMES,
    OTHER_HOSTS,
    QUERIES,
    REVISIONS,
    SETTINGS,
    VERBS,
    WEBHOOKS,
    make_hostile,
)
from tests.support.web.live import owner as owner
from tests.support.web.live import server as server
from tests.support.web.live import tab as tab
from tests.support.web.registry_help import PASSED, answer_inspections
from tests.web.client.test_client import hacrl as hacrl
from workers.questions.columns import QuestionMapping

pytestmark = pytest.mark.django_db
LIMIT_S = 2.0  # of processor time, with that of child processes; the design says 1 s
OURS = re.compile(r"Traceback|Exception|<class|object at 0x|our mistake|pydantic|django", re.IGNORECASE)
SAID = re.compile(r'class="(?:field-error|alert alert-error)"[^>]*>(.*?)</(?:div|span></span|span>)', re.DOTALL)
# What a refusal of each class says: what was wrong, or what is allowed.
OF_FOLDERS = r"Allowed folders|control character|must not contain|longer than|cannot be read|folder|needed|link"
OF_NAMES = r"characters|needed|required|not be empty|Must be text|no visible character|valid Unicode"
OF_SETTINGS = r"Must |no setting|too large|is needed|is required|is a delta of|thing to look at"
OF_BODIES = (
    r"send one JSON object|can be read|Give |Must be|needed|required|no setting|Content-Type|Choose |"
    r"appears twice in one object"
)
OF_QUERIES = r"no query parameter|not a cursor of this list|Must (be|have) "
OF_WEBHOOKS = r"list of hosts|have the form https://host/path|may not contain|not allowed|at most 500"
OF_LOGINS = r"Wrong user name or password|required|not allowed|at most"
OF_FRAMES = r"Frames? .*(JSON|op|characters)|frame is not JSON|no run|whole number|no event"
OF_COMMANDS = r"There is no|Invalid value|Must be one of|No such|Is a directory|is no YAML|line \d+, column \d+: "
# Rows that a refused login leaves on purpose.
OF_THE_DOOR = (Session, LoginTry)


def everything() -> dict[str, list[Any]]:
    """All that is stored."""
    managers = [model._default_manager for model in apps.get_models() if model not in OF_THE_DOOR]
    return {one.model._meta.label: list(one.order_by("pk").values_list(*kept(one.model))) for one in managers}


def kept(model: Any) -> list[str]:
    """The columns but for what each request of a person leaves behind."""
    return [field.attname for field in model._meta.concrete_fields if field.name not in ("last_login", "last_used_at")]


def processor_s() -> float:
    """Of this process and its ended children."""
    return sum(os.times()[:4])


class Tries:
    """Sends inputs, holds each refusal against what it must say, and counts."""

    def __init__(self, client: Client) -> None:
        self.client, self.count = client, 0
        client.raise_request_exception = False

    def heard(self, message: str, says: str, told: object) -> None:
        """A sentence for people, which says what was wrong or what is allowed."""
        assert re.search(says, message, re.IGNORECASE), (message, says, told)
        assert not OURS.search(message), (message, told)
        assert len(message) < 2000, told
        self.count += 1

    def api(self, path: str, body: Any, says: str, field: str | None = None, verb: str = "POST", **more: Any) -> None:
        """field: None where it does not matter which one."""
        data = body if isinstance(body, bytes) else json.dumps(body)
        began = processor_s()
        answer = self.client.generic(verb, f"/api/v1/{path}", data, **{"content_type": "application/json", **more})
        told = (verb, path, str(body)[:200], answer.status_code, answer.content[:400])
        assert 400 <= answer.status_code < 500, told
        assert processor_s() - began < LIMIT_S, told
        errors = answer.json()["errors"]
        assert answer.json()["error"] == errors[0], told
        assert field is None or field in [str(error["field"]) for error in errors], told
        self.heard(" ".join(error["message"] for error in errors), says, told)

    def form(self, path: str, fields: dict[str, Any], says: str, field: str = "") -> None:
        """field: the one that the words stand beside."""
        began = processor_s()
        answer = self.client.post(path, fields)
        page = answer.content.decode()
        told = (path, str(fields)[:200], answer.status_code)
        assert answer.status_code == 422, told
        assert processor_s() - began < LIMIT_S, told
        assert not field or f'id="id_{field}-error"' in page, told
        self.heard(html.unescape(" ".join(re.sub(r"<[^>]*>", " ", one) for one in SAID.findall(page))), says, told)

    def refused_page(self, path: str, fields: dict[str, Any], says: str) -> None:
        """A form whose errors stand above it."""
        answer = self.client.post(path, fields)
        assert answer.status_code == 422, (path, str(fields)[:200], answer.status_code)
        alerts = re.findall(r'class="alert alert-error"[^>]*>(.*?)</div>', answer.content.decode(), re.DOTALL)
        self.heard(html.unescape(" ".join(alerts)), says, (path, str(fields)[:200]))


@pytest.fixture
def tries(user, request, record_property) -> Iterator[Tries]:
    """For a logged-in user; at the end nothing is stored that was not before (made by the fixtures named earlier)."""
    one = Tries(Client())
    one.client.force_login(user)
    before = everything()
    yield one
    assert everything() == before
    record_property("hostile", json.dumps([request.node.name.removeprefix("test_").replace("_", " "), one.count]))


@pytest.fixture
def models(settings, tmp_path, monkeypatch) -> str:
    """A folder of models with what is hostile below it; the path. No child is to be asked."""
    folder = tmp_path / "models"
    settings.MODEL_ROOTS = [folder]
    make_hostile(folder)
    asked = answer_inspections(monkeypatch, PASSED)
    yield str(folder)
    assert asked == []


def test_folders_of_models(models, tries):
    for case in FOLDERS.values():
        location = case.replace("{root}", models)
        tries.api("models", {"location": location, "name": "x"}, OF_FOLDERS, "location")
        if "\udcff" not in location:  # which no browser can send
            tries.form("/models/new", {"kind": "local", "location": location}, OF_FOLDERS, "location")


def test_names_and_revisions_on_the_hub(models, tries):
    for hub_id in HUB_IDS:
        tries.api("models", {"kind": "hub", "location": hub_id}, "A hub id is owner/name|needed|at most", "location")
        tries.form(
            "/models/new", {"kind": "hub", "location": hub_id}, "A hub id is owner/name|needed|at most", "location"
        )
    for revision in REVISIONS:
        asked = {"kind": "hub", "location": "owner/name", "revision": revision}
        tries.api("models", asked, "A revision is a branch, tag or commit", "revision")
        tries.form("/models/new", asked, "A revision is a branch, tag or commit", "revision")


@pytest.fixture
def run(user):
    return make_run(user)


def test_names(run, tries):
    agents = [{"model": run.group.agents.first().model_id, "name": "A"}]
    doors: list[tuple[str, dict[str, Any]]] = [
        (f"projects/{run.project_id}/rename", {}),
        ("tokens", {"scopes": ["read"], "days": 1}),
        ("groups", {"agents": agents}),
        ("runs", {"group": run.group_id, "benchmark": run.benchmark_id}),
    ]
    for name in NAMES:
        for path, others in doors:
            if (path, name) not in (("tokens", "a\x00b"), (doors[0][0], "a\nb")):  # which are left out there
                tries.api(path, {**others, "name": name}, OF_NAMES, "name")
        if name != "":  # then an agent has its model's name
            named = {**agents[0], "name": name}
            tries.api("groups", {"name": "g", "agents": [named]}, OF_NAMES, "agents.0.name")
    for name in [name for name in NAMES if isinstance(name, str) and name != "\ud800"]:
        if name != "a\nb":
            tries.form(f"/projects/{run.project_id}/rename", {"name": name}, OF_NAMES)
        if name.strip():  # no tags are tags as well
            tries.form(f"/runs/{run.pk}/labels", {"tags": name, "notes": ""}, OF_NAMES)


@pytest.fixture
def request_of(user) -> dict[str, Any]:
    return launch_request(user)


def test_settings_of_runs(request_of, tries):
    for dotted, values in SETTINGS.items():
        *sections, name = dotted.split(".")
        for value in values:
            body = json.loads(json.dumps(request_of))
            place = body
            for section in sections:
                place = place.setdefault(section, {})
            place[name] = value
            tries.api("runs", body, OF_SETTINGS)
            if isinstance(value, str | int | float) and not isinstance(value, bool) and dotted != "seed":
                fields = {"name": "x", "group": body["group"], "benchmark": body["benchmark"], "seed": 1}
                fields |= {f"training.{key}": one for key, one in request_of["training"].items()}
                tries.form("/runs/new", fields | {"algorithm.name": "hacpo", dotted: value}, OF_SETTINGS)


def test_bodies(run, tries):
    renaming = f"projects/{run.project_id}/rename"
    for path in ("runs", "sweeps", "models", "groups", renaming, "tokens", "evaluations"):
        for body in BODIES:
            tries.api(path, body, OF_BODIES)
        for kind in ("text/plain", "application/xml", "multipart/form-data", ""):
            tries.api(path, b'{"name": "x"}', OF_BODIES, content_type=kind)


def test_queries(run, tries):
    lists = ("runs", "sweeps", "models", "groups", "benchmarks", "projects", "alerts", f"runs/{run.pk}/contributions")
    for path in lists:
        for name, value in QUERIES:
            tries.api(f"{path}?{name}={value}", b"", OF_QUERIES, name, verb="GET")


def test_webhooks(tries, settings):
    settings.WEBHOOK_ALLOW = ["hooks.example"]
    answer = tries.client.get("/api/v1/notifications")
    version = {"If-Match": answer["ETag"]}
    for url in WEBHOOKS:
        wishes = {**answer.json(), "webhook_url": url}
        tries.api("notifications", wishes, OF_WEBHOOKS, "webhook_url", verb="PUT", headers=version)


def test_judges(models, tries):
    allowed = r"list of hosts|have the form https://host/path|may not contain|not allowed|at most|address of its API"
    for url in WEBHOOKS:
        tries.api("judges", {"name": "swan", "settings": {"address": url, "model": "m"}}, allowed)
        tries.refused_page("/judges/new", {"name": "swan", "address": url, "model": "m"}, allowed)
    folders = f"{OF_FOLDERS}|at most|NUL and unpaired"
    for case in FOLDERS:
        location = case.replace("{root}", models)
        for kind in ("model", "reward_model"):
            tries.api("judges", {"name": "swan", "settings": {"kind": kind, "model": location}}, folders, "model")
    for name in NAMES:
        named = {"name": name, "settings": {"kind": "model", "model": "/nowhere"}}
        tries.api("judges", named, f"{OF_NAMES}|small letters|string", "name")


def test_columns_of_an_import(user, tries):
    """At the preview, the form, the API's two ways; the files stay for another choice, and no child is asked."""
    staged = stage(user)
    columns = ["question", "answer"]
    staged.found = {"columns": columns, "shown": columns, "rows": [], "guess": vars(QuestionMapping())}
    staged.note()
    address = f"/benchmarks/new/{staged.token}"
    fields = {"name": "swan", "answer_extraction": "as_is"}
    parts = ("question", "answer", "subject", "difficulty", "id")
    for part, name in ((part, name) for part in parts for name in NAMES):
        body = {**fields, f"{part}_field": name}
        if not isinstance(name, str):  # fetch alone has JSON
            if name is not None:
                tries.api(
                    "benchmarks/fetch", {"kind": "local", "location": "/", **body}, "Must be text", f"{part}_field"
                )
            continue
        if name == "\ud800" or (not name and part not in columns):  # no form has half a character; no such column
            continue
        tries.form(address, body, OF_NAMES + "|Control", f"{part}_field")
        file = SimpleUploadedFile("swan.jsonl", b"{}")
        for path, more in ((f"{address}/preview", {}), ("/api/v1/benchmarks", {"file": file})):
            answer = tries.client.post(path, body | more)
            errors = answer.json()["errors"]
            told = (path, body, errors)
            assert answer.status_code == 422, told
            assert f"{part}_field" in [error["field"] for error in errors], told
            tries.heard(" ".join(error["message"] for error in errors), OF_NAMES + "|Control", told)
    for way in ("", "magic", "as_is\0", "__class__"):
        answer = tries.client.post(f"{address}/preview", {"answer_extraction": way})
        assert [error["field"] for error in answer.json()["errors"]] == ["answer_extraction"]
    assert staged.folder.is_dir()


def test_verbs_hosts_and_tokens(run, tries):
    for verb in VERBS:
        for path in ("runs", "models", f"runs/{run.pk}/stop"):
            tries.api(path, b"{}", "This address allows (POST|GET)", verb=verb)
    for text in AUTHORIZATIONS:
        tries.api("me", b"", "not an API token|token_unknown", verb="GET", headers={"Authorization": text})
        tries.api("runs", {}, "not an API token|token_unknown", headers={"Authorization": text})
    for host in OTHER_HOSTS:
        tries.api("me", b"", "cannot be read", verb="GET", headers={"Host": host})


def test_logins(user, tries):
    tries.client.logout()
    for name in ("nobody", "", "a\x00", "x" * 10_000, "' OR 1=1 --", "\u202e", "{{7*7}}", "*)(uid=*", user.username):
        tries.form("/login", {"username": name, "password": "wrong"}, OF_LOGINS)


def test_next_page_of_a_login(user, record_property):
    for target in ELSEWHERE:
        answer = Client().post("/login", {"username": user.username, "password": "pw", "next": target})
        assert (answer.status_code, answer["Location"]) == (302, "/"), target
    record_property("hostile", json.dumps(["next pages of a login", len(ELSEWHERE)]))


@pytest.fixture
def watched(owner):
    return make_run(owner)


@pytest.mark.django_db(transaction=True)
def test_frames_of_sockets(tab, watched, tries):
    for frame in FRAMES:
        tab.socket.send(frame.replace("RUN", str(watched.pk)) if isinstance(frame, str) else frame)
        answer = tab.receive()
        assert answer["op"] == "error", (frame, answer)
        tries.heard(answer["message"], OF_FRAMES, frame)


def test_words_of_the_command_line(hacrl, run, tries):
    for words in COMMANDS:
        ended = CliRunner().invoke(main.app, words, input="- nonsense: [")
        assert 1 <= ended.exit_code <= 5, (words, ended.output)
        assert isinstance(ended.exception, SystemExit), (words, ended.exception)
        tries.heard(ended.output, OF_COMMANDS, words)
