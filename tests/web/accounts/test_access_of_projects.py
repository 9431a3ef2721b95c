"""Projects are separate: objects in a request's body, lists and forms."""

from __future__ import annotations

import json

import pytest

from hacrl_web.accounts.models import Membership
from hacrl_web.runs.models import Run
from tests.support.web.addresses import PARAMETER, routes
from tests.support.web.addresses import mine as mine
from tests.support.web.factories import launch_request, make_benchmark, make_model, make_user


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_role_applies_to_its_own_project_only(client, mine, role):
    """For objects in a request's body, the role in their own project counts."""
    somebody = make_user()
    Membership.objects.create(project=mine.project, user=somebody, role=role)
    client.force_login(somebody)
    body = launch_request(mine.owner) | {"group": mine.group.pk, "benchmark": mine.benchmark.pk}
    answer = client.post("/api/v1/runs", json.dumps(body), content_type="application/json")
    assert answer.status_code == (201 if role == "member" else 403), answer.content
    assert Run.objects.filter(owner=somebody, project=mine.project).count() == (role == "member")


def test_objects_of_two_projects_are_not_used_together(client, mine):
    somebody = make_user()
    Membership.objects.create(project=mine.project, user=somebody, role="member")
    client.force_login(somebody)
    own = launch_request(somebody)
    sweep = {key: value for key, value in own.items() if key not in ("algorithm", "seed")}
    foreign = make_benchmark(mine.owner).pk
    agents = [{"model": mine.model.pk}, {"model": make_model(somebody).pk}]
    requests = [
        ("/api/v1/runs", own | {"benchmark": foreign}, "benchmark"),
        ("/api/v1/runs", own | {"evaluation": {"benchmarks": [foreign]}}, "evaluation.benchmarks"),
        ("/api/v1/sweeps", sweep | {"algorithms": ["gspo"], "seeds": [1], "benchmark": foreign}, "benchmark"),
        ("/api/v1/evaluations", {"group": own["group"], "benchmarks": [foreign]}, "group"),
        ("/api/v1/groups", {"name": "g", "agents": agents}, "agents.1.model"),
    ]
    for path, body, field in requests:
        answer = client.post(path, json.dumps(body), content_type="application/json")
        assert answer.status_code == 422, (path, answer.content)
        assert [(e["code"], e["field"]) for e in answer.json()["errors"]] == [("other_project", field)], path
    assert not Run.objects.filter(owner=somebody).exists()


def test_lists_show_the_project_that_was_switched_to(client, mine):
    somebody = make_user()
    make_model(somebody, "own goose")
    own = somebody.memberships.get().project
    Membership.objects.create(project=mine.project, user=somebody, role="viewer")
    client.force_login(somebody)
    for project, is_mine in ((own, False), (mine.project, True), (own, False)):
        client.post("/projects/switch", {"project": project.pk, "next": "/models/"})
        shown = client.get("/models/").content.decode()
        assert (f">{mine.model.name}<" in shown, ">own goose<" in shown) == (is_mine, not is_mine)
        for path in ("/runs/", "/sweeps/", "/"):
            assert ("swan" in client.get(path).content.decode()) == is_mine, path
    assert client.post("/projects/switch", {"project": make_user().memberships.get().project.pk}).status_code == 404


def test_lists_and_forms_show_no_objects_of_other_projects(client, mine):
    client.force_login(make_user())
    names = (mine.run.name, mine.sweep.name, mine.group.name, mine.benchmark.name, mine.model.name)
    lists = [route for route in routes() if not PARAMETER.search(route)]
    pages = [f"/{route}" for route in lists] + [f"/runs/new?clone={mine.run.pk}", f"/api/v1/runs?sweep={mine.sweep.pk}"]
    for page in pages:
        answer = client.get(page)
        shown = b"".join(answer if answer.streaming else [answer.content]).decode()
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
