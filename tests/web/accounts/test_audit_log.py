"""The audit log: who changed what, when, before and after, by page, API and command. It cannot be changed."""

from __future__ import annotations

import csv
import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from hacrl_web.accounts.audit.actor import acting, of_command
from hacrl_web.accounts.audit.audit_log import AppendOnly, AuditEntry
from hacrl_web.accounts.models import Invitation, Membership, Project, User
from hacrl_web.alerts.models import NotificationSettings
from hacrl_web.runs.models import Host, Run
from hacrl_web.runs.worker.hosts import change_drain
from tests.support.web.factories import launch_request, make_benchmark, make_member, make_model, make_run, make_user

pytestmark = pytest.mark.django_db


def entries(**wanted: Any) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(**wanted).order_by("pk"))


def told(**wanted: Any) -> list[tuple[str, str, str]]:
    """(who, did, to what) of these entries, the oldest first."""
    return [(one.actor, one.action, one.kind) for one in entries(**wanted)]


@pytest.fixture
def ada(client) -> User:
    user = make_user("ada")
    client.force_login(user)
    AuditEntry.objects.all()._raw_delete("default")
    return user


def test_launch_by_the_api_is_recorded_with_its_sweep_and_project(client, ada):
    body = launch_request(ada)
    assert not AuditEntry.objects.exists(), "nobody asked for these rows"
    answer = client.post("/api/v1/runs", json.dumps(body), content_type="application/json")
    run = Run.objects.get()
    (entry,) = entries()
    assert (entry.actor, entry.actor_id, entry.via, entry.address) == ("ada", ada.pk, "api", "127.0.0.1")
    assert (entry.action, entry.kind, entry.object_id, entry.name) == ("created", "run", str(run.pk), "complete")
    assert (entry.project_id, entry.before) == (run.project_id, {})
    assert (entry.after["state"], entry.after["group"]) == ("queued", body["group"])
    assert answer.status_code == 201


def test_stop_pause_and_queue_are_recorded_with_before_and_after(client, ada):
    run = make_run(ada)
    for verb in ("pause", "resume"):
        client.post(reverse(f"runs:run_{verb}", args=[run.pk]), {"why": "lunch"})
    client.post(reverse("runs:run_queue", args=[run.pk]), {"priority": "-3"})
    client.post(f"/api/v1/runs/{run.pk}/stop")
    found = [(one.via, name, before, after) for one in entries(kind="run") for name, before, after in one.changes]
    assert ("page", "desired_state", "run", "pause") in found
    assert ("page", "desire_reason", "", "paused by ada: lunch") in found
    assert ("page", "state", "queued", "paused") in found
    assert ("page", "state", "paused", "queued") in found
    assert ("page", "priority", 0, -3) in found
    assert ("api", "desired_state", "run", "stop") in found
    assert ("api", "state", "queued", "stopped") in found


def test_each_kind_of_change_is_recorded(client, ada):
    project = ada.memberships.get().project
    body = {"name": "pair", "agents": [{"model": make_model(ada).pk, "name": "A"}]}
    client.post("/api/v1/groups", json.dumps(body), content_type="application/json")
    assert told(kind__in=["agent group", "agent"]) == [("ada", "created", "agent group"), ("ada", "created", "agent")]
    benchmark = make_benchmark(ada)
    client.post(f"/api/v1/benchmarks/{benchmark.pk}/delete")
    assert entries(kind="benchmark")[0].before["name"] == benchmark.name
    assert told(kind="benchmark") == [("ada", "deleted", "benchmark")]
    client.post(f"/projects/{project.pk}/invite", {"role": "viewer"})
    client.post(f"/projects/{project.pk}/rename", {"name": "renamed"})
    (renamed,) = entries(kind="project")
    assert renamed.changes == [("name", "ada's project", "renamed")]
    other = make_member(project, "viewer", "vic")
    client.post(f"/projects/{project.pk}/members/{other.memberships.get().pk}", {"role": "member"})
    client.post(f"/projects/{project.pk}/members/{other.memberships.get().pk}", {"remove": "1"})
    assert told(kind="membership") == [("ada", "changed", "membership"), ("ada", "deleted", "membership")]
    assert told(kind="invitation") == [("ada", "created", "invitation")]
    client.post("/sessions/end")
    assert told(action="logged out") == [("ada", "logged out", "user")]


def test_last_letter_of_a_long_text_is_a_change(client, ada):
    run = make_run(ada)
    for last in "ab":
        client.post(reverse("runs:run_labels", args=[run.pk]), {"notes": "n" * 3999 + last})
    Run.objects.filter(pk=run.pk).update(reason="r" * 9999)  # by nobody
    found = [one for entry in entries(kind="run") for one in entry.changes if one[0] == "notes"]
    assert found == [("notes", "", "n" * 3999 + "a"), ("notes", "n" * 3999 + "a", "n" * 3999 + "b")]
    with acting(of_command(["close"])):
        Run.objects.filter(pk=run.pk).update(reason="r" * 9999 + "s")
    (ended,) = [one for entry in entries(via="command") for one in entry.changes]
    assert ended == ("reason", "r" * 4000, "r" * 4000)  # that it changed, and how it begins


def test_change_of_a_secret_is_recorded_without_its_value(client, ada, settings):
    settings.WEBHOOK_ALLOW = ["hooks.example"]
    asked = {"webhook_enabled": "on", "webhook_url": "https://hooks.example/s3cret", "email": "a@b.example"}
    assert client.post("/notifications", asked).status_code == 302, NotificationSettings.objects.all()
    assert client.post("/account", {"old_password": "pw", "new_password1": "correct horse 42",
                                    "new_password2": "correct horse 42"}).status_code == 302  # fmt: skip
    assert entries(kind="notification settings")[0].after["webhook_url"] == "(hidden)"
    (password,) = entries(kind="user", action="changed")
    assert password.changes == [("password", "(hidden)", "(hidden)")]
    everything = str([(one.before, one.after) for one in entries()])
    assert "s3cret" not in everything
    assert User.objects.get(pk=ada.pk).password not in everything
    project = ada.memberships.get().project
    client.post(f"/projects/{project.pk}/invite", {"role": "viewer"})
    assert Invitation.objects.get().token_hash not in str([(one.before, one.after) for one in entries()])


def test_login_is_recorded_with_its_user(client):
    user = make_user("ada")
    client.post("/login", {"username": "ada", "password": "wrong"})
    client.post("/login", {"username": "ada", "password": "pw"})
    assert [(one.actor_id, one.action) for one in entries()] == [(user.pk, "logged in")]


def test_refused_request_is_not_recorded(client, ada):
    run = make_run(make_user())
    client.post(f"/api/v1/runs/{run.pk}/stop")
    viewer = make_member(run.project, "viewer")
    client.force_login(viewer)
    client.post(f"/api/v1/runs/{run.pk}/stop")
    client.post("/api/v1/runs", launch_request(run.owner), content_type="application/json")
    assert not entries(kind="run")


def test_command_is_recorded_with_its_user_and_background_processes_are_not(monkeypatch):
    monkeypatch.setattr("hacrl_web.accounts.audit.actor.getpass.getuser", lambda: "root")
    Host.objects.create(name="gpu-1")
    staff = make_user(is_staff=True)
    with acting(of_command(["drain", "gpu-1"])):
        change_drain(staff, "gpu-1", "finish", "disks")
    (entry,) = entries(kind="host")
    assert (entry.actor, entry.via, entry.kind, entry.name) == ("root: ./hacrl drain", "command", "host", "gpu-1")
    assert entry.after["drain"] in ("finish", "now")
    with acting(of_command(["dispatch"])):
        Host.objects.filter(name="gpu-1").update(drain="no")
    make_run()
    assert len(entries()) == 1


def test_change_that_is_rolled_back_leaves_no_entry(client, ada, monkeypatch):
    run = make_run(ada)
    monkeypatch.setattr("hacrl_web.accounts.audit.audit_log.AuditEntry.objects.bulk_create", lambda _: 1 / 0)
    client.raise_request_exception = False
    assert client.post(f"/api/v1/runs/{run.pk}/stop").status_code == 500
    run.refresh_from_db()
    assert run.desired_state == "run", "no change without its entry"


def test_entries_cannot_be_changed_or_deleted(client, ada):
    client.post(f"/projects/{ada.memberships.get().project.pk}/rename", {"name": "n"})
    entry = AuditEntry.objects.get()
    entry.actor = "eve"
    for change in (
        entry.save,
        entry.delete,
        AuditEntry.objects.all().delete,
        lambda: AuditEntry.objects.update(actor="eve"),
    ):
        with pytest.raises(AppendOnly):
            change()
    assert AuditEntry.objects.get().actor == "ada"


# The page


def test_admin_reads_the_log_of_their_projects_and_staff_the_whole(client, ada):
    project = ada.memberships.get().project
    client.post(f"/projects/{project.pk}/rename", {"name": "of ada"})
    bob = make_user("bob")
    client.force_login(bob)
    client.post(f"/projects/{bob.memberships.get().project.pk}/rename", {"name": "of bob"})
    page = client.get("/audit").content.decode()
    assert ("of bob" in page, "of ada" in page) == (True, False)
    client.force_login(make_user(is_staff=True))
    page = client.get("/audit").content.decode()
    assert ("of bob" in page, "of ada" in page) == (True, True)
    client.force_login(make_member(project, "member"))
    assert client.get("/audit").status_code == 403
    assert "Audit log" not in client.get("/account").content.decode()


def test_filters_apply_to_page_and_csv(client, ada):
    project = ada.memberships.get().project
    for name in ("=1+1", "second", "third"):
        client.post(f"/projects/{project.pk}/rename", {"name": name})
    client.post(f"/projects/{project.pk}/invite", {"role": "viewer"})
    today, tomorrow = timezone.now().date(), timezone.now().date() + timedelta(days=1)
    for query, count in (
        ("", 4),
        ("kind=project", 3),
        ("action=created", 1),
        ("actor=eve", 0),
        ("kind=project&q=second", 1),
        (f"project={project.pk}", 4),
        ("project=99999", 0),
        (f"since={today}&until={today}", 4),
        (f"since={tomorrow}", 0),
        ("since=yesterday&until=0000-00-00&project=x&page=-1", 4),
    ):
        page = client.get(f"/audit?{query}")
        assert page.status_code == 200
        assert page.context["page"].paginator.count == count, query
        table = list(csv.reader(StringIO(b"".join(client.get(f"/audit.csv?{query}")).decode())))
        assert len(table) == 1 + count, query
    rows = list(csv.DictReader(StringIO(b"".join(client.get("/audit.csv?q=%3D1")).decode())))
    assert [row["name"] for row in rows] == ["'=1+1"], "no cell is a formula"
    assert json.loads(rows[0]["after"]) == {"name": "=1+1"}


def test_list_reads_as_little_for_many_entries_as_for_few(client, ada, django_assert_max_num_queries):
    project = ada.memberships.get().project
    for number in range(60):
        Project.objects.filter(pk=project.pk).update(name=f"n{number}")
    with acting(of_command(["shell"])):
        for number in range(60):
            Project.objects.filter(pk=project.pk).update(name=f"<i>{number}")
    client.get("/audit")
    with django_assert_max_num_queries(14):
        page = client.get("/audit").content.decode()
    assert "Page 1 of 2" in page
    assert "<i>" not in page
    assert Membership.objects.count() == 1
