"""Deleting agent groups and forgetting models: what is named first, what is refused and in which words, what stays."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.registry.language_models import service as models
from hacrl_web.registry.models import Agent, AgentGroup, LanguageModel, PairInspection
from hacrl_web.runs.models import Run, State, Sweep
from tests.support.web.factories import make_group, make_model, make_run

pytestmark = pytest.mark.django_db


def text_of(response) -> str:
    return html.unescape(response.content.decode()).partition("<main")[2]


# Agent groups


def test_page_of_a_group_names_what_is_lost_and_what_stays_before_it_asks(client, ada):
    group = make_group(ada, ("left", "right"))
    address = f"/groups/{group.pk}/delete"
    assert f'href="{address}"' in text_of(client.get(group.get_absolute_url()))
    page = text_of(client.get(address))
    assert "2 agents with their settings" in page
    assert all(agent.model.name in page for agent in group.agents.all())
    assert "Delete permanently" in page
    assert AgentGroup.objects.exists(), "a page that is looked at deletes nothing"
    answer = client.post(address, follow=True)
    assert answer.redirect_chain == [("/groups/", 302)]
    assert f"{group.name} is deleted." in text_of(answer)
    assert (AgentGroup.objects.count(), Agent.objects.count(), LanguageModel.objects.count()) == (0, 0, 2)


def test_deletion_is_in_the_audit_log(client, ada):
    group = make_group(ada)
    client.delete(f"/api/v1/groups/{group.pk}")
    client.delete(f"/api/v1/models/{LanguageModel.objects.first().pk}")
    found = AuditEntry.objects.filter(action="deleted").order_by("pk").values_list("kind", "project_id", "via")
    project = group.project_id
    assert list(found) == [
        ("agent", project, "api"),
        ("agent", project, "api"),
        ("agent group", project, "api"),
        ("language model", project, "api"),
    ]


def test_group_that_runs_have_stays_and_says_how_many_and_where(client, ada):
    run = make_run(ada, name="swan")
    group = run.group
    sweep = Sweep.objects.create(owner=ada, name="rates")
    others = [make_run(ada, group=group.pk, name=f"of the sweep {seed}", seed=seed) for seed in range(2)]
    Run.objects.filter(pk__in=[one.pk for one in others]).update(sweep=sweep)
    Run.objects.update(state=State.COMPLETED)
    Run.objects.filter(pk=run.pk).update(archived_at=timezone.now())
    asked, refused = client.get(f"/groups/{group.pk}/delete"), client.post(f"/groups/{group.pk}/delete")
    assert (asked.status_code, refused.status_code) == (200, 409)
    words = "3 runs (1 archived) use this agent group: sweep “rates”, run “swan”. Delete them first"
    assert words in text_of(refused)
    for page in (text_of(asked), text_of(refused)):
        assert f'<a href="{sweep.get_absolute_url()}">rates</a>' in page
        assert f'<a href="{run.get_absolute_url()}">swan</a> (completed)' in page
        assert "of the sweep 1" not in page
        assert "Delete permanently" not in page
    answer = client.delete(f"/api/v1/groups/{group.pk}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "in_use")
    assert answer.json()["error"]["message"].startswith(words)
    assert set(Run.objects.values_list("group", flat=True)) == {group.pk}
    Run.objects.all().delete()
    assert client.delete(f"/api/v1/groups/{group.pk}").status_code == 204


# Models


def test_page_of_a_model_says_what_becomes_of_its_files(client, ada):
    model = make_model(ada, "tiny")
    other = make_model(ada)
    PairInspection.objects.create(model_a=model, model_b=other, facts={})
    address = f"/models/{model.pk}/delete"
    assert f'href="{address}"' in text_of(client.get(model.get_absolute_url()))
    page = text_of(client.get(address))
    assert model.location in page
    assert "register it again" in page
    assert client.post(address)["Location"] == "/models/"
    assert list(LanguageModel.objects.all()) == [other]
    assert not PairInspection.objects.exists()
    assert Path(model.location).is_dir()


def test_promoted_model_s_copy_stays_and_the_page_says_so(client, ada):
    model = make_model(ada)
    model.provenance = {"run": "x", "run_name": "swan", "step": 10, "agent": "A"}
    model.save()
    page = text_of(client.get(f"/models/{model.pk}/delete"))
    assert "the link to the run swan that trained it" in page
    assert f"{model.location}</span>: the copy that its promotion created" in page
    hub = LanguageModel.objects.create(owner=ada, name="h", kind="hub", location="owner/name")
    page = text_of(client.get(f"/models/{hub.pk}/delete"))
    assert ("Hub cache" in page, "by hand" in page) == (True, False)


def test_model_of_a_group_stays_and_its_groups_are_linked(client, ada):
    group = make_group(ada, ("only",))
    model = group.agents.get().model
    asked, refused = client.get(f"/models/{model.pk}/delete"), client.post(f"/models/{model.pk}/delete")
    assert (asked.status_code, refused.status_code) == (200, 409)
    for page in (text_of(asked), text_of(refused)):
        assert f'<a href="{group.get_absolute_url()}">{group.name}</a>' in page
        assert "Delete permanently" not in page
    words = f"1 agent group uses this model: {group.name}. Delete it first."
    assert words in text_of(refused)
    for number in range(models.MAX_NAMED):
        twins = AgentGroup.objects.create(owner=ada, name=f"twins {number}")
        for position, name in enumerate("AB"):
            Agent.objects.create(group=twins, model=model, name=name, position=position)
    answer = client.delete(f"/api/v1/models/{model.pk}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "in_use")
    many = "6 agent groups use this model: twins 4, twins 3, twins 2, twins 1, twins 0 and others. Delete them first."
    assert answer.json()["error"]["message"] == many
    for one in AgentGroup.objects.all():
        assert client.delete(f"/api/v1/groups/{one.pk}").status_code == 204
    assert client.delete(f"/api/v1/models/{model.pk}").status_code == 204
