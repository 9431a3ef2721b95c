"""Who gets in where: every address with every verb, and every socket operation, without a login and as somebody else.

The addresses come from the URL patterns, so a new one is tried without being listed here; one whose parameters are
unknown here fails the test until it is given a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import InterfaceError, OperationalError
from django.test.client import MULTIPART_CONTENT
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hacrl_web.registry.children import Ended
from hacrl_web.registry.uploads import stage
from hacrl_web.runs.models import Contribution, Run
from hacrl_web.runs.sweeps import launch_sweep
from tests.web.factories import launch_request, make_user
from tests.web.insight_help import add_checkpoint
from tests.web.registry_help import PASSED, answer_inspections
from tests.web.test_hub import Browser, Server
from workers.question_mapping import QuestionMapping

VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Whoever has no login must reach these.
PUBLIC = {"login", "login/<str:token>"}
PARAMETER = re.compile(r"<(?:(\w+):)?(\w+)>")


def routes(patterns: list[Any] | None = None, prefix: str = "") -> Iterator[str]:
    """The route of every URL pattern."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        else:
            assert isinstance(pattern, URLPattern)
            yield route


@pytest.fixture
def mine(db, tmp_path) -> SimpleNamespace:
    """One object of each kind, all of one owner, with names that no page has by chance."""
    owner = make_user()
    request = launch_request(owner, name="swan of the owner")
    del request["algorithm"], request["seed"]
    sweep = launch_sweep(owner, {**request, "algorithms": ["gspo"], "seeds": [1]})
    run = sweep.runs.get()
    model = run.group.agents.first().model
    agent = run.agent_names[0]
    Contribution.objects.create(run=run, seq=1, attempt=1, step=1, agent=agent, source=agent, sample=0, num_tokens=1)
    add_checkpoint(run, 1)
    questions = tmp_path / "swan.jsonl"
    questions.write_text('{"question": "swan", "answer": "white"}')
    run.benchmark.train_path = str(questions)
    run.benchmark.save()
    staged = stage(owner)
    staged.name, staged.source = "swan", "swan.jsonl"
    staged.found = {
        "columns": ["swan"],
        "shown": ["swan"],
        "rows": [{"swan": "white"}],
        "guess": vars(QuestionMapping()),
    }
    staged.note()
    return SimpleNamespace(
        owner=owner, run=run, sweep=sweep, group=run.group, benchmark=run.benchmark, model=model, staged=staged
    )


# What some operations cannot do without; the others do not mind.
QUERY = "?step=1&learner=0&metric=reward%2Fmean"


def address(route: str, mine: SimpleNamespace) -> str:
    """The route with the owner's objects as its parameters."""
    section = route.removeprefix("api/v1/").partition("/")[0]
    own = {"models": mine.model, "groups": mine.group, "benchmarks": mine.benchmark}
    values = {"run_id": mine.run.pk, "sweep_id": mine.sweep.pk, "first": 0, "second": 1, "token": "no-such-token"}
    values |= {"step": 1, "agent": 0, "staged": mine.staged.token}
    if section in own:
        values["pk"] = own[section].pk
    return "/" + PARAMETER.sub(lambda found: str(values[found[2]]), route)


def send(client: Any, verb: str, path: str) -> Any:
    return client.generic(verb, path, data=b"{}", content_type="application/json")


def of_objects() -> list[str]:
    return [route for route in routes() if PARAMETER.search(route) and route not in PUBLIC]


def test_visitor_gets_nowhere_without_a_login(client, mine):
    tried = 0
    for route in set(routes()) - PUBLIC:
        for verb in VERBS:
            answer = send(client, verb, address(route, mine))
            tried += 1
            if route.startswith("api/"):
                # 405, 404: ninja looks for the operation before it looks for the login, and shows nothing either way.
                assert answer.status_code in (401, 404, 405), (verb, route, answer.status_code)
            else:
                assert answer.status_code == 302, (verb, route, answer.status_code)
                assert answer["Location"].startswith(reverse("accounts:login")), (verb, route)
            assert b"swan" not in answer.content
    print(f"{tried} requests of a visitor")
    assert tried == len(set(routes()) - PUBLIC) * len(VERBS) >= 35 * len(VERBS)
    mine.run.refresh_from_db()
    assert mine.run.desired_state == "run"


def test_each_operation_of_the_api_answers_401_to_a_visitor(client, mine):
    from hacrl_web.api import api

    tried = 0
    for path, verbs in api.get_openapi_schema()["paths"].items():
        route = re.sub(r"\{(\w+)\}", r"<\1>", path).lstrip("/")
        for verb in verbs:
            answer = send(client, verb.upper(), address(route, mine))
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "not_authenticated"), (verb, path)
            tried += 1
    print(f"{tried} operations")
    assert tried >= 15


@pytest.mark.django_db
@pytest.mark.parametrize("is_staff", [False, True])
def test_description_of_the_api_is_for_users(client, is_staff):
    path = reverse("api-1:openapi-json")
    assert client.get(path).status_code == 401
    client.force_login(make_user(is_staff=is_staff))
    assert "/api/v1/runs" in client.get(path).json()["paths"]


def test_objects_of_another_user_are_not_there(client, mine):
    client.force_login(make_user())
    tried = 0
    for route in of_objects():
        answers = [send(client, verb, address(route, mine) + QUERY) for verb in VERBS]
        tried += len(answers)
        # 405 is said of unknown ids as well.
        assert {answer.status_code for answer in answers} <= {404, 405}, route
        assert 404 in {answer.status_code for answer in answers}, route
        assert not any(b"swan" in answer.content for answer in answers), route
    print(f"{tried} requests of a stranger for {len(of_objects())} objects")
    assert tried == len(of_objects()) * len(VERBS) >= 15 * len(VERBS)
    mine.run.refresh_from_db()
    assert (mine.run.state, mine.run.desired_state) == ("queued", "run")


def test_the_owner_reaches_each_of_them(client, mine, monkeypatch):
    """Or the tests above would prove nothing."""
    monkeypatch.setattr("hacrl_web.registry.views.measured_facts", lambda a, b: None)
    monkeypatch.setattr("hacrl_web.insight.asking.run_child", lambda *_, **__: Ended(b"", 0, False))
    verdict = b'{"reward": 1, "reason": "right", "extracted": "1", "seconds": 0}'
    monkeypatch.setattr("hacrl_web.registry.judging.run_child", lambda *_, **__: Ended(verdict, 0, False))
    overlap = b'{"num_asked": 1, "num_same": 1, "num_near": 0, "examples": []}'
    monkeypatch.setattr("hacrl_web.registry.importing._run_child", lambda _: Ended(overlap, 0, False))
    answer_inspections(monkeypatch, PASSED)
    client.force_login(mine.owner)
    for route in of_objects():
        is_api_delete = route == "api/v1/benchmarks/<int:pk>/delete"
        is_post = is_api_delete or route.endswith(("/stop", "/pause", "/resume", "/retry", "/queue", "/discard"))
        if route.endswith("/seeds"):
            answer = client.post(address(route, mine), {"seeds": [2]}, content_type="application/json")
        elif route.endswith(("/promote", "/ask")):
            answer = client.post(address(route, mine), {"step": 1, "agent": 0, "name": "own", "question": "?"})
        elif route.endswith("/try"):
            kind = "application/json" if route.startswith("api/") else MULTIPART_CONTENT
            answer = client.post(address(route, mine), {"gold": "1", "response": "1"}, content_type=kind)
        else:
            query = f"{QUERY}&other={mine.benchmark.pk}" if route.startswith("api/") else QUERY
            answer = send(client, "POST" if is_post else "GET", address(route, mine) + query)
        # 409: a run that has not ended needs the benchmark.
        reached = (409,) if is_api_delete else (200, 201, 302)
        assert answer.status_code in reached, (route, answer.status_code)


def test_lists_and_forms_of_another_user_are_empty_of_mine(client, mine):
    client.force_login(make_user())
    names = (mine.run.name, mine.sweep.name, mine.group.name, mine.benchmark.name, mine.model.name)
    lists = [route for route in routes() if not PARAMETER.search(route)]
    pages = [f"/{route}" for route in lists] + [f"/runs/new?clone={mine.run.pk}", f"/api/v1/runs?sweep={mine.sweep.pk}"]
    for page in pages:
        shown = client.get(page).content.decode()
        assert not [name for name in names if f'"{name}"' in shown or f">{name}<" in shown], page
    print(f"{len(pages)} lists")
    assert len(pages) >= 20


def test_objects_of_another_user_cannot_be_used(client, mine):
    stranger = make_user()
    client.force_login(stranger)
    own = launch_request(stranger)
    requests = [("/api/v1/runs", own | {key: getattr(mine, key).pk}) for key in ("group", "benchmark")]
    sweep = {key: value for key, value in own.items() if key not in ("algorithm", "seed")}
    requests += [
        ("/api/v1/sweeps", sweep | {"algorithms": ["gspo"], "seeds": [1], key: getattr(mine, key).pk})
        for key in ("group", "benchmark")
    ]
    requests.append(("/api/v1/groups", {"name": "g", "agents": [{"model": mine.model.pk}]}))
    for path, body in requests:
        answer = client.post(path, json.dumps(body), content_type="application/json")
        assert answer.status_code in (404, 422), body
        assert answer.json()["error"]["code"] == "not_found", body
    assert not Run.objects.filter(owner=stranger).exists()


@pytest.mark.django_db(transaction=True)
def test_every_socket_operation_without_login_and_as_a_stranger(settings, client, mine):
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    server = Server()
    try:
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://{server.address}/ws", legacy=True, origin=f"http://{server.address}")
        assert refused.value.response.status_code == 403
        tab = Browser(server, make_user(), client)
        run = str(mine.run.pk)
        tab.send(op="sub", run=run, after=0)
        assert tab.receive()["code"] == "not_found"
        tab.send(op="unsub", run=run)
        tab.send(op="ping")
        assert tab.receive() == {"op": "pong"}  # and nothing of the run before it
        tab.socket.close()
    finally:
        server.stop()


def test_number_beyond_every_column_is_no_object_and_no_error(client, mine):
    client.force_login(mine.owner)
    tried = 0
    for number in (2**31, 2**63, 10**22, 10**30):
        for route in of_objects():
            kinds = {name: kind for kind, name in PARAMETER.findall(route)}
            if "int" not in kinds.values():
                continue
            for name in [name for name, kind in kinds.items() if kind == "int"]:
                path = address(route.replace(f"<int:{name}>", str(number)), mine)
                body = {"seeds": [1]} if route.endswith("/seeds") else {}
                posted = client.post(path, body, content_type="application/json")
                answers = {client.get(path).status_code, posted.status_code}
                assert 404 in answers, path  # some are read, others written
                assert answers <= {404, 405}, path
                tried += 1
    assert tried >= 30


@pytest.mark.parametrize("number", ["9" * 23, str(2**63), "9" * 5000, "-" + "9" * 23, "1e400", "%00"])
def test_number_in_a_query_is_never_an_error_of_ours(client, mine, number):
    client.force_login(mine.owner)
    tried = 0
    names = ("page", "step", "sweep", "limit", "offset", "group", "benchmark", "clone", "state", "agent")
    for route in set(routes()):
        # The API refuses at the first odd parameter, so there one at a time; pages take what they can use.
        together = [[name] for name in names] if route.startswith("api/") else [names]
        for asked in together:
            answer = client.get(f"{address(route, mine)}?{'&'.join(f'{name}={number}' for name in asked)}")
            assert answer.status_code < 500, (route, asked)
            tried += 1
    assert tried >= 100


def test_sweep_out_of_range_is_refused_beside_its_field(client, mine):
    client.force_login(mine.owner)
    answer = client.get("/api/v1/runs?sweep=99999999999999999999999")
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "sweep")


@pytest.mark.parametrize("error", [OperationalError("database is locked"), InterfaceError("connection is closed")])
@pytest.mark.parametrize("path", ["/", "/runs/", "/login", "/api/v1/runs"])
def test_session_that_cannot_be_read_is_a_busy_database(client, user, monkeypatch, error, path):
    client.force_login(user)
    client.raise_request_exception = False

    def load(self):
        raise error

    monkeypatch.setattr(SessionStore, "load", load)
    answer = client.get(path)
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    if path.startswith("/api/"):
        assert answer.json()["error"]["code"] == "database_busy"
    else:
        assert "The database is busy. Try again in a moment." in answer.content.decode()


def test_mistake_of_ours_stays_a_500(client, user, monkeypatch):
    client.force_login(user)
    client.raise_request_exception = False
    monkeypatch.setattr("hacrl_web.runs.views.Paginator", lambda *_: 1 / 0)
    answer = client.get("/runs/")
    assert answer.status_code == 500
    assert "busy" not in answer.content.decode()
