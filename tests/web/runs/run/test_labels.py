"""Tags and notes: written on a page or by the API, shown with the run, found by the list, recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.urls import reverse

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.runs.models import Run
from tests.support.web.factories import make_member, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(client, user) -> Run:
    client.force_login(user)
    return make_run(user)


def write(client: Any, run: Run, tags: str, notes: str = "") -> Any:
    return client.post(reverse("runs:run_labels", args=[run.pk]), {"tags": tags, "notes": notes})


def test_tags_and_notes_are_stored_shown_and_recorded(client, run, user):
    notes = "why: <b>lower</b> rate\r\n\r\nsecond line"
    assert write(client, run, " LR sweep, baseline,,baseline ", notes).status_code == 302
    run.refresh_from_db()
    assert (run.tag_list, run.notes) == (["baseline", "lr sweep"], notes.replace("\r\n", "\n"))
    shown = client.get(run.get_absolute_url()).content.decode()
    assert "why: &lt;b&gt;lower&lt;/b&gt; rate" in shown
    assert "?tag=lr%20sweep" in shown
    (entry,) = AuditEntry.objects.filter(kind="run", action="changed")
    assert (entry.actor, entry.after["tags"]) == (user.username, ",baseline,lr sweep,")
    assert entry.before == {"tags": "", "notes": ""}


@pytest.mark.parametrize(
    ("tags", "notes", "said"),
    [
        (",".join("abcdefghijk"), "", "At most 10 tags; you gave 11."),
        ("a" * 41, "", "At most 40 characters; you gave 41."),
        ("a\u202eb", "", "Control characters are not allowed."),
        ("\u200b", "", "It has no visible character"),
        ("a", "n" * 4001, "At most 4000 characters; you gave 4001."),
        ("a", "nul\x00", "Control characters are not allowed."),
        ("a", "\u2067turned", "Control characters are not allowed."),
    ],
)
def test_odd_labels_are_refused_beside_their_field_and_kept_on_the_page(client, run, tags, notes, said):
    answer = write(client, run, tags, notes)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert said in page
    assert page.count('aria-invalid="true"') == 1
    run.refresh_from_db()
    assert (run.tags, run.notes) == ("", "")
    assert tags.replace("\x00", "") in page or not tags.isprintable()


def test_list_finds_whole_tags_and_keeps_the_other_filters(client, run, user):
    other = make_run(user, name="other swan")
    write(client, run, "lr, 100%")
    write(client, other, "lr_sweep")
    found = client.get("/runs/?tag=LR&state=queued".replace("LR", "lr")).content.decode()
    assert run.name in found
    assert "other swan" not in found
    assert "?state=queued&amp;tag=lr_sweep" in found
    assert "other swan" not in client.get("/runs/", {"tag": "100%"}).content.decode()
    # A tag that no run has is no filter.
    assert "other swan" in client.get("/runs/?tag=unheard").content.decode()


def test_api_reads_changes_and_filters_labels(client, run, user):
    path = f"/api/v1/runs/{run.pk}/labels"
    first = client.get(path)
    assert first.json() == {"tags": [], "notes": ""}
    body = {"tags": ["Best", "seed 1"], "notes": "kept"}

    def put(etag: str, body: Any) -> Any:
        return client.put(path, json.dumps(body), content_type="application/json", headers={"If-Match": etag})

    assert put(first["ETag"], body).json() == {"tags": ["best", "seed 1"], "notes": "kept"}
    assert put(first["ETag"], body).status_code == 412, "somebody has changed it meanwhile"
    fresh = client.get(path)["ETag"]
    for odd in ({"tags": ["a,b"]}, {"tags": [1]}, {"tags": "a"}, {"tags": ["a"] * 101}, {"notes": None}, {"x": 1}):
        answer = put(fresh, body | odd)
        assert (answer.status_code, answer.json()["error"]["field"].split(".")[0]) == (422, next(iter(odd))), odd
    make_run(user, name="untagged")
    (found,) = client.get("/api/v1/runs?tag=SEED 1").json()["items"]
    assert (found["id"], found["tags"], found["archived_at"]) == (str(run.pk), ["best", "seed 1"], None)
    assert client.get(f"/api/v1/runs/{run.pk}").json()["notes"] == "kept"
    assert client.get("/api/v1/runs?tag=seed").json()["items"] == []


def test_version_is_looked_at_in_the_transaction_that_changes_it(client, run, monkeypatch):
    """Or two changes of one version would both be taken, and the first be lost."""
    outside, seen = len(connection.savepoint_ids), []
    monkeypatch.setattr("hacrl_web.runs.run.api.check_version", lambda *_: seen.append(len(connection.savepoint_ids)))
    path = f"/api/v1/runs/{run.pk}/labels"
    assert client.put(path, json.dumps({"tags": [], "notes": "n"}), content_type="application/json").status_code == 200
    assert seen == [outside + 1]


def test_viewer_reads_the_labels_and_has_no_form(client, run):
    write(client, run, "swan", "white")
    client.force_login(make_member(run.project, "viewer"))
    page = client.get(reverse("runs:run_labels", args=[run.pk])).content.decode()
    assert "white" in page
    assert "<textarea" not in page
    assert write(client, run, "goose").status_code == 403
    shown = client.get(run.get_absolute_url()).content.decode()
    assert "swan" in shown
    assert "Edit tags" not in shown
