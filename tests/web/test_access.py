"""Access: every address with every verb, and every socket operation, in each role.

A visitor without a login, an outsider (somebody of another project), and viewer, member and admin of the project.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.test.client import MULTIPART_CONTENT
from django.urls import resolve, reverse
from ninja import Status
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hacrl_web.accounts.models import Invitation, LoginLink, Membership, Project
from hacrl_web.accounts.tokens.service import make_token
from hacrl_web.api import api
from hacrl_web.mirrors.models import Mirror
from hacrl_web.registry.agent_groups.model_pairs import SAME_MODEL
from hacrl_web.registry.base.children import (
    HUB_ACCOUNT,
    IMPORTER,
    JUDGE,
    PREVIEWER,
    REWARD_FUNCTION,
    VERIFIER,
    ChildResult,
)
from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.models import Run, RunView, Sweep
from tests.support.web.addresses import (
    BODIES,
    PUBLIC,
    VERBS,
    WRITING,
    address,
    of_objects,
    query_of,
    routes,
    send,
    verbs_of,
)
from tests.support.web.addresses import mine as mine
from tests.support.web.factories import make_member, make_run, make_user
from tests.support.web.live import Browser, Server
from tests.support.web.page_help import MARKUP, check_page
from tests.support.web.page_text import SHOWN_BY_SCRIPT
from tests.support.web.registry_help import PASSED, answer_inspections

# Addresses where people change what is their own: whatever the role.
OWN = {"logout", "account", "sessions/end", "projects/switch", "notifications", "notifications/test"}
OWN |= {"account/tokens", "account/tokens/<int:pk>/revoke", "account/hub-token"}
OWN |= {"account/link", "account/unlink"}
# What is one person's and nobody else's, whatever the project.
PRIVATE = ("account/tokens/", "api/v1/tokens/")
OWN_OF_API = ("api/v1/tokens", "api/v1/me/", "api/v1/hub-token", "api/v1/alert", "api/v1/notifications")
HUB_TOKEN = "api/v1/projects/<int:project_id>/hub-token"  # which a viewer does not see
PROMPTS = "api/v1/groups/<int:pk>/prompts"
TRIED = "api/v1/reward-functions/<int:pk>/questions"
JUDGED = "api/v1/judges/<int:pk>/questions"


def test_visitor_reaches_no_page_without_a_login(client, mine, record_property, request):
    per_verb: Counter[str] = Counter()
    for route in set(routes()) - PUBLIC:
        for verb in verbs_of(route, request):
            answer = send(client, verb, address(route, mine))
            per_verb[verb] += 1
            if route.startswith(("api/v1/", "metrics")):
                # 405, 404: ninja looks for the operation before it looks for the login, and shows nothing either way.
                assert answer.status_code in (401, 404, 405), (verb, route, answer.status_code)
            else:
                assert answer.status_code == 302, (verb, route, answer.status_code)
                assert answer["Location"].startswith(reverse("accounts:login")), (verb, route)
            assert b"swan" not in answer.content
    tried = sum(per_verb.values())
    record_property("crawl", json.dumps(["without a login", per_verb]))
    assert per_verb.keys() == set(VERBS)
    assert tried >= 2 * len(set(routes()) - PUBLIC) >= 70
    mine.run.refresh_from_db()
    assert mine.run.desired_state == "run"


def test_each_operation_of_the_api_answers_401_to_a_visitor(client, mine):
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


def test_objects_of_another_user_are_not_found(client, mine, record_property, request):
    client.force_login(make_user())
    tried: Counter[str] = Counter()
    for route in of_objects():
        verbs = verbs_of(route, request)
        answers = [send(client, verb, address(route, mine) + query_of(route), route) for verb in verbs]
        tried.update(verbs)
        # 405 is said of unknown ids as well.
        assert {answer.status_code for answer in answers} <= {404, 405}, route
        assert 404 in {answer.status_code for answer in answers}, route
        assert not any(b"swan" in answer.content for answer in answers), route
    record_property("crawl", json.dumps(["as another user", tried]))
    assert tried.keys() == set(VERBS)
    assert tried.total() >= 2 * len(of_objects()) >= 30
    mine.run.refresh_from_db()
    assert (mine.run.state, mine.run.desired_state) == ("queued", "run")


@pytest.fixture
def children(monkeypatch) -> None:
    """What pages ask of child processes is answered at once."""
    monkeypatch.setattr("hacrl_web.registry.agent_groups.views.measured_facts", lambda *_: None)
    monkeypatch.setattr("hacrl_web.registry.agent_groups.api.measured_facts", lambda *_: SAME_MODEL)
    monkeypatch.setattr(
        "hacrl_web.insight.checkpoints.ask_agents.run_child", lambda *_, **__: ChildResult(b"", 0, False)
    )
    verdict = b'{"reward": 1, "reason": "right", "extracted": "1", "seconds": 0}'
    monkeypatch.setattr(VERIFIER, "run", lambda *_: ChildResult(verdict, 0, False))
    rewards = b'{"version": "0", "results": [{"reward": 0.5, "reason": "", "parts": {}, "seconds": 0}]}'
    monkeypatch.setattr(REWARD_FUNCTION, "run", lambda *_: ChildResult(rewards, 0, False))
    judged = b'{"version": "0", "results": [{"reward": 0.5, "reason": "", "parts": {}, "seconds": 0, "cost": 0}]}'
    monkeypatch.setattr(JUDGE, "run", lambda *_: ChildResult(judged, 0, False))
    monkeypatch.setattr(IMPORTER, "run", lambda *_: ChildResult(b"{}", 0, False))
    monkeypatch.setattr(HUB_ACCOUNT, "run", lambda *_: ChildResult(b'{"name": "ada"}', 0, False))
    monkeypatch.setattr(PREVIEWER, "run", lambda *_: ChildResult(b'{"agents": [{}, {}]}', 0, False))
    monkeypatch.setattr("hacrl_web.insight.checkpoints.uploads.usable_hub_token", lambda *_: "hf_0123456789")
    monkeypatch.setattr("hacrl_web.insight.checkpoints.uploads.start_job", sent)
    copy = "hacrl_web.registry.benchmarks.api._create_from"  # a child reads the staged questions
    monkeypatch.setattr(copy, lambda *_: Status(201, Benchmark.objects.latest("pk")))
    answer_inspections(monkeypatch, *[PASSED] * 9)


def sent(folder: Path, _: str, facts: dict[str, Any], *__: Any, **___: Any) -> str:
    """An upload whose process has ended."""
    folder.mkdir(exist_ok=True)
    (folder / "1.json").write_text(json.dumps({**facts, "pid": 1, "started": -1.0}))
    return "1"


POSTED = (
    *(
        "/stop",
        "/pause",
        "/resume",
        "/retry",
        "/queue",
        "/discard",
        "/rename",
        "/archive",
        "/unarchive",
        "/invite",
        "/revoke",
        "/hub-token",
    ),
    *("members/<int:member_id>", "invitations/<int:invitation_id>"),
)


def use(client: Any, route: str, mine: SimpleNamespace) -> Any:
    """Ask an address of an object for what it is there for."""
    if route.endswith("/seeds"):
        kind = "application/json" if route.startswith("api/") else MULTIPART_CONTENT
        return client.post(address(route, mine), {"seeds": [2]}, content_type=kind)
    if route.startswith("api/") and route.endswith(("/promote", "/ask", "/extend", "/push")):
        name = {"name": f"script of {client.session['_auth_user_id']}"} if route.endswith("/promote") else {}
        return client.post(address(route, mine), BODIES[route] | name, content_type="application/json")
    if route.endswith("<str:staged>/preview"):
        return client.post(address(route, mine), {"answer_extraction": "as_is"})
    if route == f"api/v1/{MIRRORS}":
        body = BODIES[route] | {"name": f"mirror {Mirror.objects.count()}"}
        return client.post(address(route, mine), body, content_type="application/json")
    if route.endswith("mirrors/<int:mirror_id>") and route.startswith("api/"):
        return send(client, "PUT", address(route, mine), route)
    if route.endswith("mirrors/<int:mirror_id>"):
        return client.post(address(route, mine), {"do": "pause", "choice": "on"})
    if route == QUOTA:
        return client.post(address(route, mine), {"running": "1"})
    if route in (f"api/v1/{QUOTA}", f"api/v1/{RETENTION}", f"api/v1/{RETENTION}/preview"):
        return client.get(address(route, mine))
    if route.startswith(MANAGING_API):
        if route.endswith("invitations/<int:invitation_id>"):
            return client.delete(address(route, mine))
        return send(client, "POST", address(route, mine), route)
    if route == "api/v1/boards/file/<kind>":
        return client.get(address(route, mine), {"sweep": mine.sweep.pk})
    if route.endswith(("/promote", "/ask", "/extend", "/push")):
        asked = {
            "step": 1,
            "steps": 1,
            "repo": "ada/swan",
            "agent": 0,
            "name": f"of {client.session['_auth_user_id']}",
            "question": "?",
        }
        return client.post(address(route, mine), asked)
    if route.endswith("/copy"):
        kind = "application/json" if route.startswith("api/") else MULTIPART_CONTENT
        name = {"name": f"copy {AgentGroup.objects.count()}"}
        return client.post(address(route, mine), name, content_type=kind)
    if route == JUDGED:
        body = {"benchmark": mine.benchmark.pk}
        return client.post(address(route, mine), body, content_type="application/json")
    if route.endswith("/try"):
        kind = "application/json" if route.startswith("api/") else MULTIPART_CONTENT
        return client.post(address(route, mine), {"gold": "1", "response": "1"}, content_type=kind)
    if route.endswith("/rename"):
        kind = "application/json" if route.startswith("api/") else MULTIPART_CONTENT
        return client.post(address(route, mine), {"name": "swan"}, content_type=kind)
    if route.endswith(("/invite", "members/<int:member_id>")):
        return client.post(address(route, mine), {"role": "admin"})
    if "run-views/<int:pk>" in route:  # any member may delete it
        RunView.objects.all().delete()
        mine.view = RunView.objects.create(owner=mine.owner, name="swan", query="")
        return send(client, "DELETE" if route.startswith("api/") else "POST", address(route, mine))
    if route.endswith("/queue-draft"):  # of a run that is one
        path = address(route, mine).replace(str(mine.run.pk), str(make_run(mine.owner, draft=True).pk))
        return client.post(path, content_type="application/json")
    parameter = {PROMPTS: "benchmark", TRIED: "benchmark"}.get(route)
    query = f"?{parameter}={mine.benchmark.pk}" if parameter else query_of(route)
    if route in (RUN_DELETING, SWEEP_DELETING):  # of others, which wait: these are needed further on
        waiting = make_run(mine.owner)
        waiting.sweep = Sweep.objects.create(owner=mine.owner, name="waits")
        waiting.save()
        place = f"runs/{waiting.pk}" if route == RUN_DELETING else f"sweeps/{waiting.sweep.pk}"
        return client.post(f"/api/v1/{place}/delete")
    is_post = route.endswith(POSTED) or route in DELETING or PEOPLE in route
    return send(client, "POST" if is_post else "GET", address(route, mine) + query)


RUN_DELETING = "api/v1/runs/<run_id>/delete"
SWEEP_QUEUEING = "api/v1/sweeps/<int:sweep_id>/queue-draft"
SWEEP_DELETING = "api/v1/sweeps/<int:sweep_id>/delete"
DELETING = ("api/v1/benchmarks/<int:pk>/delete", RUN_DELETING, SWEEP_DELETING)
ASKING_TO_DELETE = (
    *(f"{section}/<int:pk>/delete" for section in ("benchmarks", "models", "groups")),
    "reports/<int:report_id>/delete",
    "share/links/<int:link_id>/revoke",
)
MANAGING = "projects/<int:project_id>/"
MANAGING_API = "api/v1/projects/<int:project_id>/"
MIRRORS = "projects/<int:project_id>/mirrors"  # members look at them, admins change them
SHARING = "projects/<int:project_id>/sharing"  # the same
QUOTA = "projects/<int:project_id>/quota"  # members look at it, staff change it
RETENTION = "projects/<int:project_id>/retention"  # the same
TRIALS = "sweeps/<int:sweep_id>/trials"  # of a search, which this sweep is not
PEOPLE = "people/<int:user_id>"  # for staff alone


def test_members_and_admins_reach_each_of_them(client, mine, children):
    """Or the tests above would prove nothing. Members manage nobody, and delete nothing of another's."""
    everyone = {"member": make_member(mine.project), "owner": mine.owner}  # who is an admin
    tried = dict.fromkeys(everyone, 0)
    for role, somebody in everyone.items():
        client.force_login(somebody)
        for route in of_objects():
            if "staged" in route and role != "owner":
                continue  # an upload under way is its sender's
            answer = use(client, route, mine)
            # 409: a run that has not ended stays, and needs its benchmark; no draft.
            reached = (409,) if route in (*DELETING, SWEEP_QUEUEING) else (200, 201, 202, 204, 302)
            if route == "api/v1/runs/<run_id>/resume":
                reached = (200, 409)  # 409: stopped by the role before
            if PEOPLE in route or route == TRIALS or (role != "owner" and route.startswith(PRIVATE)):
                reached = (404,)
            asks_to_delete = route in ASKING_TO_DELETE
            for_viewers = (MIRRORS, SHARING, f"api/v1/{QUOTA}", f"api/v1/{RETENTION}")
            manages = route.startswith((MANAGING, MANAGING_API)) and route not in for_viewers
            if role == "member" and (route in DELETING or asks_to_delete or manages):
                reached = (403,)
            if route in (QUOTA, RETENTION, f"api/v1/{RETENTION}/preview"):
                reached = (403,)
            if route.endswith("invitations/<int:invitation_id>"):
                mine.invitation, _ = Invitation.objects.make(mine.project, "viewer", mine.owner)
            assert answer["Cache-Control"] == "no-store, private", route
            assert answer.status_code in reached, (role, route, answer.status_code, answer.content[:300])
            tried[role] += 1
    print(f"requests for {len(of_objects())} kinds of addresses: {tried}")
    assert min(tried.values()) >= 40


def stored(mine: SimpleNamespace) -> list[Any]:
    """What a viewer might have changed."""
    models = (Run, Sweep, LanguageModel, AgentGroup, Benchmark, Membership, Invitation, Project, LoginLink)
    mine.run.refresh_from_db()
    return [*(model.objects.count() for model in models), mine.run.state, mine.run.desired_state, mine.run.priority]


def name_hostile(mine: SimpleNamespace) -> None:
    """Everything that has a name has one that is markup."""
    named = (mine.run, mine.sweep, mine.group, mine.benchmark, mine.model, mine.project, mine.token)
    for one in (*named, mine.group.agents.first()):
        type(one).objects.filter(pk=one.pk).update(name=MARKUP)
    Run.objects.filter(pk=mine.run.pk).update(notes=MARKUP, tags=f",{MARKUP},", reason=MARKUP)
    Invitation.objects.filter(pk=mine.invitation.pk).update(comment=MARKUP)
    type(mine.owner).objects.filter(pk=mine.owner.pk).update(username=MARKUP)
    mine.staged.name = mine.staged.source = MARKUP
    mine.staged.note()


# Of a page, but for what its script shows: the forms that write, by their address (empty: the page's own).
_WRITES = re.compile(r'<form(?=[^>]*method="post")[^>]*?(?:action="([^"]*)"[^>]*)?>')


def forms_on(answer: Any) -> list[str]:
    """Where the forms in a page's content write to."""
    if answer.streaming or "text/html" not in answer["Content-Type"]:
        return []
    return _WRITES.findall(SHOWN_BY_SCRIPT.sub("", answer.content.decode()).partition("<main")[2])


def test_viewer_reads_everything_and_writes_nothing(client, mine, children, record_property, request):
    is_full = not request.config.getoption("markexpr")
    viewer = make_member(mine.project, "viewer")
    tried: Counter[str] = Counter()
    num_named = 0
    name_hostile(mine)
    before = stored(mine)
    leaving = {f"projects/{mine.project.pk}/members/{viewer.memberships.get().pk}"}
    offered: set[tuple[str, str]] = set()
    client.force_login(viewer)
    of_owner = Client()
    of_owner.force_login(mine.owner)
    for route in sorted(set(routes()) - PUBLIC):
        path = address(route, mine) + query_of(route)
        is_for_admins = route.removeprefix("api/v1/") in ("audit", "audit.csv") or route == HUB_TOKEN
        is_form = getattr(resolve(path.partition("?")[0]).func, "is_for_members", False)
        reading = ("GET", "OPTIONS") if is_full or "api/" not in route else ("GET",)
        answers = {verb: send(client, verb, path) for verb in reading}
        tried.update(list(answers))
        assert {answer["Cache-Control"] for answer in answers.values()} == {"no-store, private"}, route
        read = answers["GET"]
        num_named += check_page(read, route)
        if is_form:
            assert (read.status_code, "Its admins (" in read.content.decode()) == (403, True), route
        elif "staged" in route or route.startswith(PRIVATE):
            pass  # an upload under way is its sender's
        elif is_full or is_for_admins or read.status_code != 200:
            of_owners = send(of_owner, "GET", path)
            check_page(of_owners, route)
            assert read.status_code == (403 if is_for_admins else of_owners.status_code), route
        if route not in OWN:
            offered |= {(route, one) for one in forms_on(read) if one.lstrip("/") not in OWN | leaving}
        for verb in verbs_of(route, request, WRITING) if route not in OWN and not route.startswith(OWN_OF_API) else ():
            answer = send(client, verb, path, route)
            tried[verb] += 1
            expected = (403, 404, 405) if "people/" in route or route.startswith(PRIVATE) else (403, 405)
            assert answer.status_code in expected, (verb, route, answer.status_code)
            if answer.status_code == 403 and route.startswith("api/"):
                assert answer.json()["error"]["code"] == "forbidden"
                assert re.search("viewer|staff", answer.json()["error"]["message"])
    record_property("crawl", json.dumps(["as a viewer who writes", {verb: tried[verb] for verb in WRITING}]))
    assert not offered
    assert stored(mine) == before
    assert min(tried.values()) >= 60
    assert num_named >= 30, num_named


def test_token_of_a_viewer_reads_and_writes_nothing(client, mine, children, request):
    viewer = make_member(mine.project, "viewer")
    _, text = make_token(viewer, name="script", scopes=["read", "write"], days=1)
    headers = {"Authorization": f"Bearer {text}"}
    before, tried = stored(mine), 0
    for route in sorted(one for one in set(routes()) - PUBLIC if one.startswith("api/v1/")):
        if route.startswith(OWN_OF_API):
            continue
        for verb in verbs_of(route, request, WRITING):
            kind = "application/json"
            body = json.dumps(BODIES.get(route, {}))
            answer = client.generic(verb, address(route, mine) + query_of(route), body, kind, headers=headers)
            expected = (403, 404, 405) if PEOPLE in route else (403, 405)
            assert answer.status_code in expected, (verb, route, answer.status_code, answer.content)
            tried += answer.status_code == 403
    print(f"{tried} operations refused")
    assert stored(mine) == before
    assert tried >= 30
    assert client.get(f"/api/v1/runs/{mine.run.pk}", headers=headers).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_every_socket_operation_is_refused_without_login_and_to_outsiders(settings, client, mine, record_property):
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
        record_property("crawl", json.dumps(["at the socket", {"open": 1, "sub": 1, "unsub": 1}]))
    finally:
        server.stop()
