"""Drafts of sweeps: saved without runs, edited and queued by form, API and terminal, and checked again."""

import json

import pytest
import yaml
from django.urls import reverse

from hacrl_web.registry.models import Agent, AgentGroup
from hacrl_web.runs.launch.launch import launch_sweep, queue_draft
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run, Sweep
from hacrl_web.runs.sweeps.sweeps import add_seeds
from tests.support.web.factories import launch_request, make_member, make_user, sweep_form
from tests.web.client.test_client import hacrl as hacrl  # its fixture
from tests.web.client.test_client import said_json

pytestmark = pytest.mark.django_db


@pytest.fixture
def request_(user):
    """Two rules on two seeds: four runs."""
    request = launch_request(user, name="swan", algorithm={"alpha": 3})
    del request["seed"]
    return request | {"algorithms": ["hacpo", "gspo"], "seeds": [4, 5], "grid": {"alpha": [1, 2]}}


@pytest.fixture
def draft(user, request_):
    return launch_sweep(user, request_ | {"draft": True})


def codes(refused):
    return {error.field: error.code for error in refused.value.errors}


def test_draft_has_no_runs_and_queueing_makes_those_that_a_launch_makes(user, draft, request_):
    assert (draft.is_draft, draft.runs.count()) == (True, 0)
    assert "draft" not in draft.request
    with pytest.raises(LaunchError) as refused:
        add_seeds(user, draft, [6])
    assert refused.value.status == 409
    queue_draft(user, draft)
    draft.refresh_from_db()
    launched = launch_sweep(user, request_)
    assert not draft.is_draft
    # HACPO with alpha 1 and 2, and GSPO, on two seeds.
    assert draft.runs.count() == 6
    rows = ("name", "variant", "seed", "state", "spec")
    assert list(draft.runs.order_by("pk").values_list(*rows).order_by("name")) == list(
        launched.runs.values_list(*rows).order_by("name")
    )
    with pytest.raises(Exception) as again:
        queue_draft(user, draft)
    assert (codes(again), again.value.status) == ({None: "not_draft"}, 409)


def test_cautions_are_confirmed_when_it_is_queued(web, user, request_):
    draft = launch_sweep(user, request_ | {"algorithm": {"delta": 0.8}, "grid": {}, "draft": True})
    with pytest.raises(LaunchError) as refused:
        queue_draft(user, draft)
    assert codes(refused) == {"algorithm.delta": "delta_above_half"}
    page = web.get(draft.get_absolute_url()).content.decode()
    assert 'name="confirm" value="delta_above_half"' in page
    assert not Run.objects.exists()
    web.post(reverse("runs:sweep_queue_draft", args=[draft.pk]), {"confirm": "delta_above_half"})
    assert Run.objects.count() == 4


def test_a_group_that_changed_since_keeps_it_a_draft(web, user, draft):
    Agent.objects.filter(name="A").update(learning_rate=0.5)
    page = web.post(reverse("runs:sweep_queue_draft", args=[draft.pk]), follow=True).content.decode()
    assert "changed since it was saved: edit the draft" in page
    draft.refresh_from_db()
    assert draft.is_draft
    draft_group = draft.request["group"]
    Sweep.objects.update(request={**draft.request, "group": 10**6})
    assert "There is no such group." in web.get(draft.get_absolute_url()).content.decode()
    assert draft_group != 10**6


def posted(user, **changes):
    return sweep_form(user) | {"seeds": "4, 5", "grid.alpha": "1, 2"} | changes


def test_form_saves_shows_changes_and_queues_a_draft(web, user, request_):
    saved = web.post(reverse("runs:run_save"), posted(user))
    sweep = Sweep.objects.get()
    assert (saved.status_code, saved.url, sweep.is_draft) == (302, sweep.get_absolute_url(), True)
    page = web.get(sweep.get_absolute_url()).content.decode()
    assert "from the form" in page
    assert f'href="{reverse("runs:run_create")}?sweep={sweep.pk}"' in page
    assert sweep.name in web.get(reverse("home")).content.decode()
    edit = web.get(f"{reverse('runs:run_create')}?sweep={sweep.pk}").content.decode()
    assert f'name="draft_sweep" value="{sweep.pk}"' in edit
    assert 'name="seeds" value="4, 5"' in edit
    assert 'name="grid.alpha" value="1, 2"' in edit.replace('id="id-grid-alpha" ', "")
    web.post(reverse("runs:run_save"), posted(user, draft_sweep=sweep.pk, name="changed", seeds="7"))
    sweep.refresh_from_db()
    assert (sweep.name, sweep.request["seeds"], Sweep.objects.count()) == ("changed", [7], 1)
    web.post(reverse("runs:run_create"), posted(user, draft_sweep=sweep.pk, name="queued", seeds="7, 8"))
    sweep.refresh_from_db()
    assert (sweep.name, sweep.is_draft, sweep.runs.count(), Sweep.objects.count()) == ("queued", False, 6, 1)
    gone = web.post(reverse("runs:run_save"), posted(user, draft_sweep=sweep.pk))
    assert gone.status_code == 409


def test_api_and_terminal_save_edit_and_queue_a_draft(hacrl, user, request_, tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(request_))
    assert hacrl("launch", str(file), "--draft").startswith("Draft of a sweep ")
    sweep = Sweep.objects.get()
    path = f"/sweeps/{sweep.pk}/queue-draft"
    answer = said_json(hacrl("api", "POST", path))
    assert (answer["is_draft"], len(answer["runs"])) == (False, 6)


def test_edit_by_api_needs_the_version(web, draft, request_):
    path = f"/api/v1/sweeps/{draft.pk}/request"
    version = web.get(path)
    body = json.dumps(request_ | {"seeds": [9]})
    send = {"data": body, "content_type": "application/json"}
    assert web.put(path, **send).status_code == 428
    assert web.put(path, **send, headers={"If-Match": version["ETag"]}).json()["seeds"] == [9]
    assert web.put(path, **send, headers={"If-Match": version["ETag"]}).status_code == 412


def test_viewers_and_strangers_change_no_draft(client, user, draft):
    for person, status in ((make_member(draft.project, "viewer"), 403), (make_user(), 404)):
        client.force_login(person)
        assert client.post(f"/api/v1/sweeps/{draft.pk}/queue-draft", {}, "application/json").status_code == status
    assert not Run.objects.exists()


def test_form_of_a_draft_has_its_settings_of_single_agents(web, user, request_):
    group = AgentGroup.objects.get(pk=request_["group"])
    name = group.agents.first().name
    draft = launch_sweep(user, request_ | {"agents": {name: {"learning_rate": 1e-5}}, "draft": True})
    page = web.get(reverse("runs:run_create"), {"sweep": draft.pk}).content.decode()
    assert f"{name}: learning_rate = 1e-05</textarea>" in page
