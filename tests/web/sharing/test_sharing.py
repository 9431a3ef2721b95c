"""Links without a session: what each kind shows, until when, to whom, how guesses are slowed; and the file."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.accounts.models import MAX_ADDRESS_TRIES, LoginTry
from hacrl_web.reports.reports import create_report
from hacrl_web.runs.archive.deletion import hide_runs
from hacrl_web.sharing.models import ShareLink, SharingBan
from tests.support.web.factories import make_member, make_run, make_user
from tests.support.web.leaderboard_help import finished_sweep

pytestmark = pytest.mark.django_db
KINDS = ("run", "sweep", "board", "report")
ACTS = re.compile(
    r"<(?:a|form|button|input|select|textarea|script|iframe|object)\b|\bhref=\"(?!/static/css/|data:,)|hx-|data-url"
)


@pytest.fixture
def owner(client):
    user = make_user("ada")
    client.force_login(user)
    return user


@pytest.fixture
def sweep(owner):
    return finished_sweep(owner, {"hacpo": (0.6, 0.7), "gspo": (0.4, 0.5)})


@pytest.fixture
def pages(owner, sweep) -> dict[str, str]:
    """The address of a page of each kind."""
    run = sweep.runs.filter(algorithm="hacpo").first()
    board = f"/leaderboard/board?sweep={sweep.pk}"
    text = f"Sharing **helps**.\n\n{board}\n\nhttp://testserver{run.get_absolute_url()}\n\n[Compared](/runs/)\n"
    report = create_report(owner, sweep.project, "What we found", text)
    addresses = (run.get_absolute_url(), sweep.get_absolute_url(), board, report.get_absolute_url())
    return dict(zip(KINDS, addresses, strict=True))


def made(client: Any, page: str, days: str = "7") -> str:
    """The path of a new link."""
    answer = client.post(f"/share?of={page.replace('?', '%3F')}", {"days": days, "comment": "for Grace"})
    assert answer.status_code == 200, answer.content.decode()
    return re.search(r"http://testserver(/shared/[\w-]{43})<", answer.content.decode())[1]


@pytest.mark.parametrize("kind", KINDS)
def test_link_of_each_kind_opens_without_a_session_and_only_shows(client, pages, kind):
    path = made(client, pages[kind])
    answer = Client().get(path)
    page = answer.content.decode()
    assert answer.status_code == 200
    assert {"run": "Sharing helped", "report": "helps"}.get(kind, "hacpo") in page
    assert "0.6" in page
    assert page.count('<svg class="chart-picture"') >= {"report": 3}.get(kind, 1)
    assert ACTS.findall(page) == []
    assert pages[kind].partition("?")[0] not in page.replace(path, "")
    assert answer["X-Robots-Tag"] == "noindex, nofollow"
    assert answer["Referrer-Policy"] == "no-referrer"
    assert answer["Cache-Control"] == "no-store, private"
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    assert "script-src 'none'" in answer["Content-Security-Policy"]
    assert not answer.cookies
    assert page == client.get(path).content.decode()  # whoever has a session sees no more


@pytest.mark.parametrize("kind", KINDS)
def test_link_ends_with_its_date_and_when_it_is_revoked(client, pages, kind):
    path, other = made(client, pages[kind]), made(client, pages[kind])
    first = ShareLink.objects.order_by("pk").first()
    ShareLink.objects.filter(pk=first.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    ended = Client().get(path)
    assert (ended.status_code, "This link has ended" in ended.content.decode()) == (410, True)
    assert Client().get(other).status_code == 200
    listed = client.get(f"/share?of={pages[kind].replace('?', '%3F')}").content.decode()
    assert listed.count("for Grace") == 2
    assert "ended" in listed
    assert client.post(reverse("sharing:revoke", args=[ShareLink.objects.latest("pk").pk])).status_code == 302
    assert Client().get(other).status_code == 410


def test_token_is_stored_as_a_hash_alone_and_each_change_is_in_the_audit_log(client, pages):
    token = made(client, pages["run"]).rpartition("/")[2]
    link = ShareLink.objects.get()
    client.post(reverse("sharing:revoke", args=[link.pk]))
    entries = AuditEntry.objects.filter(project_id=link.project_id, name="for Grace").order_by("pk")
    assert [(one.action, one.actor, one.via) for one in entries] == [
        ("created", "ada", "page"),
        ("changed", "ada", "page"),
    ]
    assert entries[0].after["address"] == pages["run"]
    assert entries[1].after["revoked_at"]
    assert token not in str([*ShareLink.objects.values_list(), *AuditEntry.objects.values_list()])


def test_robot_of_1000_guesses_is_slowed_by_its_address(client, pages):
    path = made(client, pages["run"])
    robot = Client(REMOTE_ADDR="198.51.100.7")
    answers = [robot.get(f"/shared/{guess:043d}").status_code for guess in range(1000)]
    assert answers == [404] * MAX_ADDRESS_TRIES + [429] * (1000 - MAX_ADDRESS_TRIES)
    assert LoginTry.objects.count() == MAX_ADDRESS_TRIES  # refused ones write nothing
    assert robot.get(path).status_code == 429  # nor does a right one help
    assert Client().get(path).status_code == 200  # of another address
    assert robot.post("/login", {"username": "ada", "password": "x"}).status_code == 422  # logins have their own limit


def test_opening_a_link_is_no_guess(client, pages):
    path = made(client, pages["run"])
    assert {Client().get(path).status_code for _ in range(MAX_ADDRESS_TRIES + 2)} == {200}
    assert not LoginTry.objects.exists()


def test_nothing_of_another_is_shown_or_can_be_shared(client, owner, sweep, pages):
    other = make_user("eve")
    secret = make_run(other, name="secret swan")
    made_by_other = finished_sweep(other, {"gspo": (0.123,)}, name="secret board")
    theirs = (
        secret.get_absolute_url(),
        made_by_other.get_absolute_url(),
        f"/leaderboard/board?sweep={made_by_other.pk}",
    )
    for page in (*theirs, "/", "/account", "/api/v1/runs", "/projects/", "", "https://example.org/", "//x["):
        for answer in (client.get(f"/share?of={page}"), client.post(f"/share?of={page}", {"days": 7})):
            assert answer.status_code == 404, page
        assert client.get(f"/share/file?of={page}").status_code == 404, page
    # Staff see all projects; what they share of a report is the report's project alone.
    owner.is_staff = True
    owner.save()
    report = create_report(
        owner, sweep.project, "Both", "\n\n".join((*theirs, pages["run"], f"/runs/?runs={secret.pk}"))
    )
    page = Client().get(made(client, report.get_absolute_url())).content.decode()
    assert "secret" not in page
    assert "0.123" not in page
    assert page.count("It shows something that was deleted") == 4
    both = f"/leaderboard/board?sweep={sweep.pk}%26sweep={made_by_other.pk}"
    assert client.get(both.replace("%26", "&")).status_code == 200
    assert client.get(f"/share?of={both.replace('?', '%3F')}").status_code == 404


def test_link_closes_when_its_maker_leaves_or_the_page_is_deleted(client, owner, sweep, pages):
    project = sweep.project
    member = make_member(project, name="bob")
    own = Client()
    own.force_login(member)
    path = made(own, pages["run"])
    assert Client().get(path).status_code == 200
    member.memberships.update(role="viewer")
    assert Client().get(path).status_code == 410
    member.memberships.update(role="member")
    assert Client().get(path).status_code == 200
    hide_runs([sweep.runs.get(pk=pages["run"].rpartition("/")[2])])
    cache.clear()  # a page is drawn once in 20 s
    gone = Client().get(path)
    assert (gone.status_code, "deleted" in gone.content.decode()) == (410, True)


def test_admins_forbid_links_and_viewers_make_none(client, owner, sweep, pages):
    path = made(client, pages["sweep"])
    viewer, member = Client(), Client()
    viewer.force_login(make_member(sweep.project, "viewer"))
    member.force_login(make_member(sweep.project))
    share = f"/share?of={pages['sweep']}"
    assert viewer.get(share).status_code == 200
    assert viewer.post(share, {"days": 7}).status_code == 403
    link = ShareLink.objects.get()
    assert [one.post(f"/share/links/{link.pk}/revoke").status_code for one in (viewer, member)] == [403, 403]
    forbid = f"/projects/{sweep.project_id}/sharing"
    assert member.post(forbid, {"allow": "no"}).status_code == 403
    assert client.post(forbid, {"allow": "no"}).status_code == 302
    assert SharingBan.objects.get().project == sweep.project
    assert Client().get(path).status_code == 410
    assert client.post(share, {"days": 7}).status_code == 403
    assert "Links are forbidden" in client.get(forbid).content.decode()
    assert client.post(forbid, {"allow": "yes"}).status_code == 302
    assert Client().get(path).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status"),
    [({}, 422), ({"days": "0"}, 422), ({"days": "x"}, 422), ({"days": "7", "comment": "x" * 81}, 422)],
)
def test_link_has_one_of_the_end_dates(client, pages, fields, status):
    assert client.post(f"/share?of={pages['run']}", fields).status_code == status
    assert not ShareLink.objects.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_file_needs_nothing_else(client, pages, kind):
    answer = client.get(f"/share/file?of={pages[kind].replace('?', '%3F')}")
    page = answer.content.decode()
    assert "attachment" in answer["Content-Disposition"]
    assert re.findall(r"https?:|url\(|@import|src=|href=\"(?!data:,)|srcset|testserver", page) == []
    assert not re.search(r"<(?:script|link rel=\"stylesheet)", page)
    assert len(page) < 150_000
    top = page.partition("<main")[2]
    assert top.index("<h1>") < top.index({"run": "Sharing helped", "report": "helps"}.get(kind, "0.6"))


def test_hostile_names_and_texts_stay_text(client, owner, sweep, pages):
    sweep.runs.update(name="<script>alert(1)</script>", reason="<img src=x onerror=alert(1)>")
    type(sweep).objects.update(name="<b onclick=x>&amp;")
    for kind in ("run", "sweep", "board"):
        page = client.get(f"/share/file?of={pages[kind].replace('?', '%3F')}").content.decode()
        assert "<script" not in page, kind
        assert "<img" not in page, kind
        assert "<b " not in page, kind


def test_pages_offer_share(client, pages):
    for kind, page in pages.items():
        assert "Share…" in client.get(page).content.decode(), kind


def test_feature_is_switched_off_by_its_line():
    assert "hacrl_web.sharing" in settings.FEATURES
