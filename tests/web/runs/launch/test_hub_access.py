"""The question whether the hub gives a run's models to its user: when it is asked, and what its answer holds up."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.core.cache import cache

from hacrl_web.accounts.models import Membership, Role
from hacrl_web.registry.children import HUB_ACCESS, HUB_ACCOUNT, ChildResult
from hacrl_web.registry.hub_tokens import set_hub_token
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.launch.drafts import queue_draft
from hacrl_web.runs.launch.launch import launch, retry
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.sweeps.sweeps import launch_sweep, queue_sweep_draft, retry_all
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import launch_request, make_group, make_user

pytestmark = pytest.mark.django_db
JSON = {"content_type": "application/json"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SENTENCE = "meta/gated is gated: accept its licence."


class Asked:
    """Answers for the child; `requests` are what it was asked."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {"refusals": [SENTENCE], "silent": False}

    def run(self, arguments: Any, stdin: bytes, memory_bytes: int) -> ChildResult:
        self.requests.append(json.loads(stdin))
        return ChildResult(json.dumps(self.answer).encode(), 0, False)


@pytest.fixture
def hub(monkeypatch) -> Any:
    asked = Asked()
    monkeypatch.setattr(HUB_ACCESS, "run", asked.run)
    cache.clear()
    yield asked
    cache.clear()


def gated_request(user: Any, **changes: Any) -> dict[str, Any]:
    group = make_group(user)
    LanguageModel.objects.filter(agents__group=group).update(kind="hub", location="meta/gated", revision=COMMIT)
    return launch_request(user, group=group.pk, **changes)


def sweep_request(request: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {key: value for key, value in request.items() if key not in ("algorithm", "seed")} | {
        "algorithms": ["hacpo", "gspo"],
        "seeds": [1, 2],
        **changes,
    }


def refused(act: Any, *arguments: Any) -> None:
    count = Run.objects.filter(state=State.QUEUED).count()
    with pytest.raises(LaunchError) as error:
        act(*arguments)
    [one] = error.value.errors
    assert (one.code, one.field, one.message) == ("no_hub_access", "group", SENTENCE)
    assert Run.objects.filter(state=State.QUEUED).count() == count


def test_no_door_queues_what_the_hub_refuses(hub, user):
    request = gated_request(user)
    refused(launch, user, request)
    refused(launch_sweep, user, sweep_request(request))
    draft = launch(user, request | {"draft": True})  # nothing is queued, and nobody is asked
    sweep_draft = launch_sweep(user, sweep_request(request, draft=True))
    assert len(hub.requests) == 2
    refused(queue_draft, user, draft)
    refused(queue_sweep_draft, user, sweep_draft)
    hub.answer = {"refusals": [], "silent": False}
    run = launch(user, request)
    sweep = launch_sweep(user, sweep_request(request))
    hub.answer = {"refusals": [SENTENCE], "silent": False}
    cache.clear()
    for one in [run, *sweep.runs.all()]:
        Run.objects.filter(pk=one.pk).update(state=State.FAILED)
        one.refresh_from_db()
    refused(retry, user, run)
    refused(retry_all, user, sweep)
    assert Sweep.objects.count() == 2


def test_evaluation_of_a_gated_model_is_refused(hub, web, user):
    request = gated_request(user)
    body = {"group": request["group"], "benchmarks": [request["benchmark"]]}
    answer = web.post("/api/v1/evaluations", body, **JSON)
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, SENTENCE)
    assert not Run.objects.exists()


def test_estimate_asks_nothing(hub, web, user):
    assert web.post("/api/v1/runs/estimate", gated_request(user), **JSON).status_code == 200
    assert hub.requests == []


def test_open_models_and_those_that_a_run_has_trained_are_not_asked_for(hub, user):
    request = gated_request(user)
    models = LanguageModel.objects.filter(location="meta/gated")
    models.update(facts={"is_restricted": False})
    run = launch(user, request)
    models.update(facts={"is_restricted": True})
    refused(launch, user, request)
    Run.objects.filter(pk=run.pk).update(step=1)
    assert launch(user, request).state == State.QUEUED
    Run.objects.filter(pk=run.pk).update(origin={"by": "another installation"})  # whose cache is not ours
    refused(launch, user, request)


def test_silent_hub_holds_nothing_up_and_is_left_alone_for_a_minute(hub, user):
    hub.answer = {"refusals": [], "silent": True}
    request = gated_request(user)
    assert launch(user, request).state == State.QUEUED
    assert launch(user, request).state == State.QUEUED
    assert len(hub.requests) == 1


def test_busy_or_broken_child_holds_nothing_up(hub, user, monkeypatch):
    monkeypatch.setattr(HUB_ACCESS, "run", lambda *_: ChildResult(b"", -9, True))
    assert launch(user, gated_request(user)).state == State.QUEUED


@pytest.mark.parametrize("result", [None, ChildResult(b"", -9, False)], ids=["busy", "broken"])
def test_child_that_said_nothing_of_the_hub_does_not_switch_the_question_off(hub, user, monkeypatch, result):
    request = gated_request(user)
    with monkeypatch.context() as patch:
        if result is None:  # too many at once
            patch.setattr(HUB_ACCESS, "turns", threading.BoundedSemaphore(1))
            patch.setattr(HUB_ACCESS, "wait_s", 0.01)
            HUB_ACCESS.turns.acquire()
        else:
            patch.setattr(HUB_ACCESS, "run", lambda *_: result)
        assert launch(user, request).state == State.QUEUED
    refused(launch, user, request)


def test_child_that_is_too_slow_switches_the_question_off_for_a_while(hub, user, monkeypatch):
    request = gated_request(user)
    with monkeypatch.context() as patch:
        patch.setattr(HUB_ACCESS, "run", lambda *_: ChildResult(b"", -9, True))
        assert launch(user, request).state == State.QUEUED
    assert launch(user, request).state == State.QUEUED
    assert hub.requests == []


def test_viewer_is_refused_before_the_token_of_the_project_is_used(hub, user):
    owner = make_user()
    request = gated_request(owner)
    draft = launch(owner, request | {"draft": True})
    sweep_draft = launch_sweep(owner, sweep_request(request, draft=True))
    Membership.objects.create(project=draft.project, user=user, role=Role.VIEWER)
    acts = (
        lambda: launch(user, request),
        lambda: launch_sweep(user, sweep_request(request)),
        lambda: queue_draft(user, draft),
        lambda: queue_sweep_draft(user, sweep_draft),
    )
    for act in acts:
        with pytest.raises(FieldErrors) as refusal:
            act()
        assert refusal.value.status == 403
    assert hub.requests == []


def test_the_token_is_that_of_the_project_and_goes_to_standard_input_alone(hub, user, monkeypatch):
    hub.answer = {"refusals": [], "silent": False}
    monkeypatch.setattr(HUB_ACCOUNT, "run", lambda *_: ChildResult(b'{"name": "ada"}', 0, False))
    request = gated_request(user)
    run = launch(user, request)
    assert hub.requests == [{"models": [["meta/gated", COMMIT]]}]  # two agents, one model; no token
    set_hub_token(run.project, "hf_of_the_project")
    launch(user, request)
    assert hub.requests[1:] == [{"models": [["meta/gated", COMMIT]], "hub_token": "hf_of_the_project"}]
    launch(user, request)  # the same token and model: known for some minutes
    assert len(hub.requests) == 2


def test_unreadable_token_is_a_refusal(hub, user, monkeypatch, settings):
    monkeypatch.setattr(HUB_ACCOUNT, "run", lambda *_: ChildResult(b'{"name": "ada"}', 0, False))
    set_hub_token(user, "hf_of_the_user")
    request = gated_request(user)
    settings.SECRET_KEY = "another key of this installation"
    with pytest.raises(FieldErrors) as refusal:
        launch(user, request)
    assert refusal.value.errors[0].code == "unreadable_token"
    assert not Run.objects.exists()


def test_group_of_local_models_asks_nothing(hub):
    user = make_user()
    assert launch(user, launch_request(user)).state == State.QUEUED
    assert hub.requests == []
