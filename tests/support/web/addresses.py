"""Every address of the product, and one owner's objects to ask for there: what the walks over all of them share.

The addresses come from the URL patterns, so a new one is tried without being listed here; one whose parameters are
unknown here fails the walks until it is given a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from hacrl_web.accounts.models import Invitation
from hacrl_web.accounts.tokens.service import make_token
from hacrl_web.api import api
from hacrl_web.mirrors.models import Mirror
from hacrl_web.registry.benchmarks.uploads import stage
from hacrl_web.registry.models import Judge, RewardFunction
from hacrl_web.reports.models import Report
from hacrl_web.runs.launch.launch import launch_sweep
from hacrl_web.runs.models import Contribution, RunView
from hacrl_web.sharing.models import ShareLink
from tests.support.web.factories import launch_request, make_user
from tests.support.web.insight_help import add_checkpoint
from workers.questions.columns import QuestionMapping

VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Whoever has no login must reach these.
PUBLIC = {"login", "login/<str:token>", "invitation/<str:token>", "healthz", "readyz"}
PUBLIC |= {"login/oidc", "login/oidc/callback", "shared/<str:token>"}
WRITING = ("POST", "PUT", "PATCH", "DELETE")
PARAMETER = re.compile(r"<(?:(\w+):)?(\w+)>")
# What some operations cannot do without; the others know no such parameter.
NEEDED = {"step": "1", "learner": "0", "metric": "reward/mean"}


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
    source = "def reward(**fields): return 0.5  # swan\n"
    function = RewardFunction.objects.create(owner=owner, name="swan", text=source, sha256="0" * 64)
    settings = {"kind": "endpoint", "address": "http://swan/v1", "model": "swan"}
    judge = Judge.objects.create(owner=owner, name="swan", settings=settings, sha256="0" * 64)
    project = run.project
    view = RunView.objects.create(owner=owner, name="swan", query="q=swan")
    report = Report.objects.create(owner=owner, project=run.project, title="swan", text=run.get_absolute_url())
    mirror = Mirror.objects.create(owner=owner, project=run.project, name="swan", kind="tensorboard", sends="chosen")
    invitation, _ = Invitation.objects.make(project, "viewer", owner, "swan")
    link, _ = ShareLink.objects.all().make(owner, project, run.get_absolute_url(), 7, "swan")
    return SimpleNamespace(
        owner=owner,
        project=project,
        member=project.memberships.get(),
        invitation=invitation,
        run=run,
        sweep=sweep,
        group=run.group,
        benchmark=run.benchmark,
        model=model,
        function=function,
        view=view,
        judge=judge,
        mirror=mirror,
        report=report,
        link=link,
        staged=staged,
        token=make_token(owner, name="swan", scopes=["read"], days=1)[0],
    )


def verbs_of(route: str, request: pytest.FixtureRequest, verbs: tuple[str, ...] = VERBS) -> tuple[str, ...]:
    """In `full` all; else those of an operation, or GET and POST, and of the others one, which differs by address."""
    if not request.config.getoption("markexpr"):
        return verbs
    path = "/" + PARAMETER.sub(r"{\2}", route)
    asked = {verb.upper() for verb in operations().get(path, ())} or {"GET", "POST"}
    others = [verb for verb in verbs if verb not in asked]
    asked |= {others[sum(route.encode()) % len(others)]} if others else set()
    return tuple(verb for verb in verbs if verb in asked)


@cache
def operations() -> dict[str, Any]:
    """What the API's description says of each address."""
    return dict(api.get_openapi_schema()["paths"])


def declared(route: str) -> dict[str, bool]:
    """The query parameters of an address of the API, and whether an operation cannot do without them."""
    verbs = operations().get("/" + PARAMETER.sub(r"{\2}", route), {})
    queries = [one for verb in verbs.values() for one in verb.get("parameters", ()) if one["in"] == "query"]
    needed = {one["name"] for one in queries if one["required"]}
    return {one["name"]: one["name"] in needed for one in queries}


def query_of(route: str) -> str:
    """The parameters that an operation cannot do without; pages leave out what they do not know."""
    if not route.startswith("api/v1/"):
        return f"?{urlencode(NEEDED)}"
    needed = [name for name, is_needed in declared(route).items() if is_needed]
    return f"?{urlencode({name: value for name, value in NEEDED.items() if name in needed})}"


def address(route: str, mine: SimpleNamespace) -> str:
    """The route with the owner's objects as its parameters."""
    section = route.removeprefix("api/v1/").partition("/")[0]
    own: dict[str, Any] = {"models": mine.model, "reward-functions": mine.function, "judges": mine.judge}
    own |= {"run-views": mine.view, "groups": mine.group, "benchmarks": mine.benchmark}
    own |= {"tokens": mine.token, "account": mine.token}
    values = {"run_id": mine.run.pk, "sweep_id": mine.sweep.pk, "first": 0, "second": 1, "token": "no-such-token"}
    values |= {"step": 1, "agent": 0, "staged": mine.staged.token, "project_id": mine.project.pk}
    values |= {"member_id": mine.member.pk, "invitation_id": mine.invitation.pk, "user_id": mine.owner.pk}
    values |= {"slug": "metrics", "kind": "csv", "table": "metrics", "ending": "jsonl"}
    values |= {"mirror_id": mine.mirror.pk, "report_id": mine.report.pk, "number": 1, "link_id": mine.link.pk}
    if section in own:
        values["pk"] = own[section].pk
    return "/" + PARAMETER.sub(lambda found: str(values[found[2]]), route)


# Bodies of the operations that read theirs before they look for the object.
BODIES = {
    "api/v1/runs/<run_id>/checkpoints/promote": {"step": 1, "agent": 0},
    "api/v1/runs/<run_id>/checkpoints/ask": {"step": 1, "question": "?"},
    "api/v1/runs/<run_id>/checkpoints/push": {"step": 1, "agent": 0, "repo": "ada/swan"},
    "api/v1/runs/<run_id>/checkpoints/extend": {"step": 1, "steps": 1},
    "api/v1/runs/<run_id>/labels": {"tags": [], "notes": ""},
    "api/v1/runs/<run_id>/panels": {"panels": ""},
    "api/v1/reports": {"title": "swan"},
    "api/v1/reports/<int:report_id>": {"title": "swan", "text": "", "version": 1},
    "api/v1/run-views": {"name": "swan", "query": ""},
    "api/v1/projects": {"name": "swan"},
    "api/v1/projects/<int:project_id>/rename": {"name": "swan"},
    "api/v1/projects/<int:project_id>/members/<int:member_id>": {"role": "admin"},
    "api/v1/projects/<int:project_id>/invitations": {"role": "viewer"},
    "api/v1/groups/<int:pk>/copy": {"name": "white swan"},
    "api/v1/projects/<int:project_id>/mirrors": {"kind": "tensorboard"},
    "api/v1/runs/<run_id>/mirrors/<int:mirror_id>": {"choice": "on"},
    "api/v1/hub-token": {"token": "hf_0123456789"},
    "api/v1/projects/<int:project_id>/hub-token": {"token": "hf_0123456789"},
}


def send(client: Any, verb: str, path: str, route: str = "") -> Any:
    return client.generic(verb, path, data=json.dumps(BODIES.get(route, {})), content_type="application/json")


def of_objects() -> list[str]:
    belongs_to_nobody = PUBLIC | {"docs/<slug:slug>"}
    return [route for route in routes() if PARAMETER.search(route) and route not in belongs_to_nobody]
