"""Archiving and deleting runs: only ended ones, by whom, what is gone and what stays; on the page and by the API."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.urls import reverse

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.runs.archive import archive, deletion
from hacrl_web.runs.archive.leftover_files import DeletedRuns
from hacrl_web.runs.models import Run, State, Sweep, TelemetryEvent, Worker
from hacrl_web.runs.telemetry.shipper import Shipper
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import make_member, make_run, metrics, write_spool
from workers.contract.trainer_process import lock_run_dir

pytestmark = pytest.mark.django_db


@pytest.fixture
def ended(client, user) -> Run:
    """A completed run with one stored event and a run directory."""
    client.force_login(user)
    run = Run.objects.claim(make_run(user, name="ended swan").pk, Worker("host", 1, 0.0, "here"))
    write_spool(run.run_dir, 1, metrics(1, reward=0.5))
    run.transition_to(State.RUNNING, reason="", attempt=1)
    Shipper(run.pk, run.run_dir, 1).ship()
    run.transition_to(State.COMPLETED, reason="", attempt=1)
    return run


def send(client: Any, act: str, *runs: Run) -> Any:
    return client.post(reverse(f"runs:runs_{act}"), {"runs": [run.pk for run in runs]})


def test_archived_runs_leave_the_lists_and_come_back(client, ended, user):
    make_run(user, name="waiting goose")
    assert send(client, "archive", ended).status_code == 302
    for page in ("/runs/", "/"):
        shown = client.get(page).content.decode()
        assert "waiting goose" in shown
        assert "ended swan" not in shown
    archived = client.get("/runs/?archived=1").content.decode()
    assert "ended swan" in archived
    assert "waiting goose" not in archived
    assert "Restore" in client.get(ended.get_absolute_url()).content.decode()
    names = [run["name"] for run in client.get("/api/v1/runs?archived=false").json()["items"]]
    assert names == ["waiting goose"]
    assert len(client.get("/api/v1/runs").json()["items"]) == 2
    assert send(client, "unarchive", ended).status_code == 302
    assert "ended swan" in client.get("/runs/").content.decode()
    assert AuditEntry.objects.filter(kind="run", object_id=str(ended.pk), action="changed").count() == 2


def test_page_names_what_a_deletion_loses_and_then_it_is_gone(client, ended):
    page = client.get(reverse("runs:runs_delete"), {"runs": [ended.pk, "no id"]}).content.decode()
    assert "Deleted permanently" in page
    assert "ended swan" in page
    assert "Delete 1 run permanently" in page
    assert Run.objects.filter(pk=ended.pk).exists(), "GET asks"
    assert send(client, "delete", ended).status_code == 302
    assert not Run.objects.filter(pk=ended.pk).exists()
    assert DeletedRuns().tick() == 1
    assert not TelemetryEvent.objects.exists()
    assert not ended.run_dir.exists()
    (entry,) = AuditEntry.objects.filter(kind="run", action="deleted")
    assert entry.name == "ended swan"


def test_run_that_has_not_ended_stays_and_the_others_go(client, ended, user):
    waiting = make_run(user, name="waiting goose")
    answer = send(client, "delete", ended, waiting)
    assert answer.status_code == 409
    assert "waiting goose is queued: stop it first" in answer.content.decode()
    assert list(Run.objects.all()) == [waiting]
    assert send(client, "archive", waiting).status_code == 409
    for act in ("archive", "delete"):
        refused = client.post(f"/api/v1/runs/{waiting.pk}/{act}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "in_use")
    waiting.refresh_from_db()
    assert waiting.archived_at is None


def test_files_on_another_host_are_said_to_stay_there(client, ended):
    page = client.get(reverse("runs:runs_delete"), {"runs": ended.pk}).content.decode()
    assert (
        "are on another host that this server cannot reach" in page
    )  # its data folder is "here", which is not this one


@pytest.mark.parametrize("is_api", [True, False])
def test_run_that_is_deleted_while_it_is_archived_is_gone_and_no_mistake_of_ours(client, ended, monkeypatch, is_api):
    """As when somebody else deletes it between the look at it and the change."""
    look = archive.require

    def look_and_lose(user: Any, project: Any, role: str) -> None:
        look(user, project, role)
        Run.objects.filter(pk=ended.pk).delete()

    monkeypatch.setattr(archive, "require", look_and_lose)
    client.raise_request_exception = False
    answer = client.post(f"/api/v1/runs/{ended.pk}/archive") if is_api else send(client, "archive", ended)
    assert answer.status_code == 404
    assert "deleted a moment ago" in answer.content.decode()


def test_members_archive_all_runs_but_delete_their_own_alone(client, ended):
    member = make_member(ended.project)
    client.force_login(member)
    assert send(client, "delete", ended).status_code == 409
    refused = client.post(f"/api/v1/runs/{ended.pk}/delete")
    assert refused.status_code == 403
    assert "Only its owner and the admins" in refused.content.decode()
    assert send(client, "archive", ended).status_code == 302
    client.force_login(make_member(ended.project, "viewer"))
    for act in ("archive", "unarchive", "delete"):
        assert send(client, act, ended).status_code == 403
    assert "Delete…" not in client.get("/runs/?archived=1").content.decode()
    ended.refresh_from_db()
    assert ended.archived_at is not None


def test_runs_of_another_project_are_neither_named_nor_touched(client, ended):
    client.force_login(make_run().owner)
    for act in ("archive", "unarchive", "delete"):
        page = client.get(reverse(f"runs:runs_{act}"), {"runs": ended.pk}).content.decode()
        assert "No runs selected" in page
        assert "swan" not in page
        send(client, act, ended)
    ended.refresh_from_db()
    assert ended.archived_at is None


@pytest.fixture
def sweep(ended, user) -> Sweep:
    made = Sweep.objects.create(owner=user, name="two swans")
    Run.objects.filter(pk=ended.pk).update(sweep=made)
    return made


def test_sweep_is_renamed_and_its_runs_are_not(client, sweep):
    path = reverse("runs:sweep_rename", args=[sweep.pk])
    for odd in ("", " ", "a" * 121, "a\x00"):
        page = client.post(path, {"name": odd})
        assert page.status_code == 422
        assert 'id="rename-sweep" open' in page.content.decode()
        refused = client.post(f"/api/v1/sweeps/{sweep.pk}/rename", {"name": odd}, content_type="application/json")
        assert (refused.status_code, refused.json()["error"]["field"]) == (422, "name"), odd
    page = client.post(path, {"name": "swan " * 25}).content.decode()
    assert f'value="{"swan " * 25}"' in page, "what was typed is not lost"
    sweep.refresh_from_db()
    assert sweep.name == "two swans"
    client.post(path, {"name": " three geese "})
    sweep.refresh_from_db()
    assert (sweep.name, sweep.runs.get().name) == ("three geese", "ended swan")
    assert AuditEntry.objects.get(kind="sweep", action="changed").after == {"name": "three geese"}


def test_sweep_is_deleted_with_its_runs_or_not_at_all(client, ended, sweep, user):
    waiting = make_run(user, name="waiting goose")
    Run.objects.filter(pk=waiting.pk).update(sweep=sweep)
    page = reverse("runs:sweep_delete", args=[sweep.pk])
    assert "only be deleted together with all its runs" in client.get(page).content.decode()
    assert client.post(page).status_code == 409
    assert client.post(f"/api/v1/sweeps/{sweep.pk}/delete").status_code == 409
    assert sweep.runs.count() == 2
    waiting.request_stop()
    shown = client.get(page).content.decode()
    assert "Delete the sweep with 2 runs permanently" in shown
    assert "waiting goose" in shown
    assert client.post(page).status_code == 302
    assert not Sweep.objects.exists()
    assert not Run.objects.exists()
    assert DeletedRuns().tick() == 2
    assert not ended.run_dir.exists()


def test_sweep_with_one_trainer_that_still_ends_loses_none_of_its_runs(client, ended, sweep, user):
    other = make_run(user, name="slow goose")
    Run.objects.filter(pk=other.pk).update(sweep=sweep)
    other.request_stop()
    other.run_dir.mkdir(parents=True, exist_ok=True)
    for held in (ended, other):  # whichever comes first
        lock = lock_run_dir(held.run_dir)
        answer = client.post(f"/api/v1/sweeps/{sweep.pk}/delete")
        os.close(lock)
        assert (answer.status_code, "is still stopping" in answer.content.decode()) == (409, True)
        assert sweep.runs.count() == 2
        assert [run.run_dir.is_dir() for run in (ended, other)] == [True, True]
    assert client.post(f"/api/v1/sweeps/{sweep.pk}/delete").status_code == 204
    assert not Run.objects.exists()


def test_draft_that_was_queued_meanwhile_keeps_its_row_and_its_files(user):
    run = make_run(user)
    run.run_dir.mkdir(parents=True, exist_ok=True)
    run.state = State.DRAFT  # as it was read before somebody queued it
    with pytest.raises(FieldErrors, match="is queued: stop it first"):
        deletion.delete_run(user, run)
    assert Run.objects.filter(pk=run.pk).exists()
    assert run.run_dir.is_dir()


def test_member_does_not_delete_the_sweep_of_another(client, sweep):
    client.force_login(make_member(sweep.project))
    assert client.post(reverse("runs:sweep_delete", args=[sweep.pk])).status_code == 403
    assert client.post(f"/api/v1/sweeps/{sweep.pk}/delete").status_code == 403
    assert sweep.runs.count() == 1
