"""Projects: members, invitations, closed accounts and ended sessions."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from hacrl_web.accounts.login.sessions import session_ended
from hacrl_web.accounts.models import ApiToken, Invitation, LoginLink, Membership, Project, User
from hacrl_web.accounts.people import service as people
from hacrl_web.accounts.roles.projects import current_project, project_of_new
from hacrl_web.accounts.tokens.service import make_token
from hacrl_web.registry.models import LanguageModel
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import make_member, make_model, make_run, make_user

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse 42"


@pytest.fixture
def lab(db) -> SimpleNamespace:
    """A project with its admin, a member and a viewer."""
    admin = make_user("ada")
    project = admin.memberships.get().project
    member, viewer = make_member(project, "member", "mel"), make_member(project, "viewer", "vic")
    return SimpleNamespace(project=project, admin=admin, member=member, viewer=viewer)


def logged_in(user: User, browser: str = "Firefox") -> Client:
    client = Client(HTTP_USER_AGENT=browser)
    if not User.objects.get(pk=user.pk).check_password(PASSWORD):  # another hash would end the sessions there are
        user.set_password(PASSWORD)
        user.save(update_fields=["password"])
    assert client.post("/login", {"username": user.username, "password": PASSWORD}).status_code == 302
    return client


def invitation_link(project: Project, by: User, role: str = "member") -> str:
    return f"/invitation/{Invitation.objects.make(project, role, by)[1]}"


# Roles


def test_user_sees_the_objects_of_their_projects(lab):
    model = make_model(lab.admin)
    for somebody, seen in ((lab.admin, 1), (lab.member, 1), (lab.viewer, 1), (make_user(), 0)):
        assert LanguageModel.objects.visible_to(somebody).count() == seen
    assert LanguageModel.objects.visible_to(make_user(is_staff=True)).count() == 1
    people.remove_member(lab.member.memberships.get())
    assert not LanguageModel.objects.visible_to(lab.member).exists()
    assert model.project == lab.project


def test_new_objects_join_the_current_project_and_names_are_unique_there(lab):
    other = Project.objects.make("other", lab.admin)
    make_model(lab.admin, "tiny")
    ada = User.objects.get(pk=lab.admin.pk)
    assert project_of_new(ada) == lab.project
    ada.chosen_project = other
    assert make_model(ada, "tiny").project == other
    assert list(LanguageModel.objects.listed_for(ada).values_list("project", flat=True)) == [other.pk]


def test_new_objects_of_a_viewer_join_a_project_where_the_user_is_a_member(lab):
    Membership.objects.filter(user=lab.viewer).delete()
    viewer = User.objects.create_user("vera")
    own = viewer.memberships.get().project
    Membership.objects.create(project=lab.project, user=viewer, role="viewer")
    assert project_of_new(User.objects.get(pk=viewer.pk)) == own


def test_form_is_refused_to_a_viewer_and_names_a_project_that_allows_it(lab):
    somebody = make_user("ida")
    own_run = make_run(somebody)
    Membership.objects.create(project=lab.project, user=somebody, role="viewer")
    client = logged_in(somebody)
    assert client.get("/models/new").status_code == 200
    client.post("/projects/switch", {"project": lab.project.pk})
    refused = client.get("/models/new")
    text = html.unescape(refused.content.decode())
    assert refused.status_code == 403
    assert f"viewer of project “{lab.project}”" in text
    assert f"Its admins ({lab.admin}) can make you a member. Or switch to project “{own_run.project}”" in text
    assert client.get(f"/runs/{own_run.pk}/clone", follow=True).status_code == 200  # of the other project


def test_viewer_cannot_make_rows_even_without_a_page(lab):
    with pytest.raises(FieldErrors, match="viewer of project") as caught:
        make_model(lab.viewer)
    assert caught.value.status == 403
    assert not LanguageModel.objects.exists()


def test_staff_see_all_projects_until_they_choose_one(lab, client):
    staff = make_user("root", is_staff=True)
    make_model(lab.admin, "of the lab")
    client.force_login(staff)
    assert ">of the lab<" in client.get("/models/").content.decode()
    client.post("/projects/switch", {"project": staff.memberships.get().project.pk})
    assert ">of the lab<" not in client.get("/models/").content.decode()
    client.post("/projects/switch", {"project": ""})
    assert current_project(User.objects.get(pk=staff.pk)) is None


def test_user_of_one_project_sees_no_project_switch(lab):
    assert "All projects" not in logged_in(lab.admin).get("/").content.decode()
    assert "projects/switch" not in logged_in(lab.viewer).get("/").content.decode()
    Project.objects.make("second", lab.admin)
    assert "projects/switch" in logged_in(lab.admin).get("/").content.decode()


# Members


def test_admin_changes_roles_and_others_do_not(lab):
    place = lab.viewer.memberships.get()
    address = f"/projects/{lab.project.pk}/members/{place.pk}"
    for somebody in (lab.viewer, lab.member):
        assert logged_in(somebody).post(address, {"role": "admin"}).status_code == 403
    assert logged_in(lab.admin).post(address, {"role": "owner"}).status_code == 422
    assert logged_in(lab.admin).post(address, {"role": "member"}).status_code == 302
    place.refresh_from_db()
    assert place.role == "member"


def test_last_admin_stays_admin(lab):
    client, place = logged_in(lab.admin), lab.admin.memberships.get()
    address = f"/projects/{lab.project.pk}/members/{place.pk}"
    for asked in ({"role": "viewer"}, {"remove": "1"}):
        answer = client.post(address, asked)
        assert (answer.status_code, b"needs an admin" in answer.content) == (409, True)
    Membership.objects.filter(user=lab.member).update(role="admin")
    assert client.post(address, {"remove": "1"}).status_code == 302
    assert not lab.admin.memberships.exists()
    assert client.get(f"/projects/{lab.project.pk}").status_code == 404


def test_only_admin_is_told_that_a_project_needs_an_admin(lab):
    page = f"/projects/{lab.project.pk}"
    reason = "A project needs an admin: make another member an admin first."
    stuck = re.compile(r"<button[^>]* disabled")
    for others, shown in (("member", 2), ("admin", 0)):  # Set and Leave of the own row
        Membership.objects.filter(user=lab.member).update(role=others)
        body = logged_in(lab.admin).get(page).content.decode()
        assert (len(stuck.findall(body)), body.count(reason)) == (shown, shown // 2)


def test_projects_are_made_by_staff(lab, client):
    assert logged_in(lab.admin).post("/projects/", {"name": "mine"}).status_code == 403
    client.force_login(make_user("root", is_staff=True))
    for name, status in (("", 422), ("n" * 81, 422), ("a\x00b", 422), ("n" * 80, 302)):
        assert client.post("/projects/", {"name": name}).status_code == status, name
    assert Project.objects.filter(name="n" * 80).exists()
    answer = logged_in(lab.admin).post(f"/projects/{lab.project.pk}/rename", {"name": " A  lab "})
    assert answer.status_code == 302
    assert Project.objects.get(pk=lab.project.pk).name == "A lab"


# Invitations


def test_invitation_link_is_shown_once_and_stored_as_a_hash(lab):
    client = logged_in(lab.admin)
    page = client.post(f"/projects/{lab.project.pk}/invite", {"role": "viewer", "comment": "<b>Bob</b>"})
    link = page.content.decode().partition("http://testserver/invitation/")[2].partition('"')[0]
    assert (page.status_code, len(link)) == (201, 43)
    assert "&lt;b&gt;Bob" in page.content.decode()
    invitation = Invitation.objects.get()
    assert link not in str(vars(invitation))
    assert link not in client.get(f"/projects/{lab.project.pk}").content.decode()
    assert client.post(f"/projects/{lab.project.pk}/invite", {"role": "king"}).status_code == 422
    assert client.post(f"/projects/{lab.project.pk}/invitations/{invitation.pk}").status_code == 302
    assert Client().get(f"/invitation/{link}").status_code == 410


def test_invited_person_creates_an_account_in_that_project_only(lab, client):
    link = invitation_link(lab.project, lab.admin, "viewer")
    page = client.get(link)
    assert page.status_code == 200
    assert str(lab.project) in page.content.decode().replace("&#x27;", "'")
    asked = {"username": "bob", "password": PASSWORD, "repeated": PASSWORD}
    assert client.post(link, asked).status_code == 302
    bob = User.objects.get(username="bob")
    assert [(one.project, one.role) for one in bob.memberships.all()] == [(lab.project, "viewer")]
    assert client.get("/models/").status_code == 200
    assert Client().get(link).status_code == 410  # once
    assert Client().post(link, asked | {"username": "eve"}).status_code == 410
    assert not User.objects.filter(username="eve").exists()


@pytest.mark.parametrize(
    ("username", "password", "repeated", "said"),
    [
        ("bob", "12345678", "12345678", "too common"),
        ("bob", "short1", "short1", "too short"),
        ("bobbybobby", "bobbybobby1", "bobbybobby1", "too similar"),
        ("bob", PASSWORD, PASSWORD + "!", "differ"),
        ("ADA", PASSWORD, PASSWORD, "taken"),
        ("b b", PASSWORD, PASSWORD, "valid username"),
        ("\x00", PASSWORD, PASSWORD, "Null"),
        ("n" * 151, PASSWORD, PASSWORD, "150"),
        ("", "", "", "required"),
    ],
)
def test_refused_account_leaves_the_invitation_usable(lab, client, username, password, repeated, said):
    link = invitation_link(lab.project, lab.admin)
    answer = client.post(link, {"username": username, "password": password, "repeated": repeated})
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert User.objects.count() == 3
    assert client.get(link).status_code == 200


def test_user_joins_by_link_and_keeps_a_higher_role(lab):
    guest = make_user("gus")
    client = logged_in(guest)
    assert b"Join as gus" in client.get(link := invitation_link(lab.project, lab.admin, "member")).content
    assert not lab.project.memberships.filter(user=guest).exists(), "looking spends nothing"
    assert client.post(link).status_code == 302
    assert client.post(invitation_link(lab.project, lab.admin, "viewer")).status_code == 302
    assert lab.project.memberships.get(user=guest).role == "member"


def test_invitation_ends_when_it_expires_or_its_inviter_may_not_invite(lab, client):
    link = invitation_link(lab.project, lab.admin)
    Invitation.objects.all().update(expires_at=timezone.now() - timedelta(seconds=1))
    assert client.get(link).status_code == 410
    Membership.objects.filter(user=lab.member).update(role="admin")
    link = invitation_link(lab.project, lab.member, "admin")
    people.set_role(lab.member.memberships.get(), "member")
    assert client.get(link).status_code == 410
    link = invitation_link(lab.project, lab.admin)
    User.objects.filter(pk=lab.admin.pk).update(is_active=False)
    assert client.get(link).status_code == 410
    root = make_user("root", is_staff=True)
    link = invitation_link(lab.project, root, "admin")
    assert client.get(link).status_code == 200
    User.objects.filter(pk=root.pk).update(is_staff=False)  # at the command line, past people.py
    assert client.get(link).status_code == 410


def test_links_and_tokens_of_a_closed_account_stay_invalid_when_it_opens_again(lab, client):
    staff = make_user("root", is_staff=True)
    token = make_token(lab.admin, name="script", scopes=["read"], days=7)[1]
    link = invitation_link(lab.project, lab.admin, "admin")
    for is_active in (False, True):
        people.set_active(staff, lab.admin, is_active)
        assert client.get(link).status_code == 410
        assert client.get("/api/v1/me", HTTP_AUTHORIZATION=f"Bearer {token}").status_code == 401


def test_staff_cannot_close_the_account_of_a_superuser(client):
    boss = User.objects.create_superuser("boss")
    client.force_login(make_user("root", is_staff=True))
    assert client.post(f"/people/{boss.pk}", {"do": "close"}).status_code == 302
    boss.refresh_from_db()
    assert boss.is_active


# Sessions and accounts


@pytest.fixture
def ended() -> Iterator[list[str]]:
    """The keys of ended sessions, as sent to the owners of open connections."""
    keys: list[str] = []

    def hear(session_key: str, **_: Any) -> None:
        keys.append(session_key)

    session_ended.connect(hear)
    yield keys
    session_ended.disconnect(hear)


def test_logging_out_everywhere_and_a_new_password_end_the_others(lab, ended):
    first, second = logged_in(lab.admin), Client()
    second.post("/login", {"username": "ada", "password": PASSWORD})
    new = {"old_password": PASSWORD, "new_password1": "other horse 43", "new_password2": "other horse 43"}
    key = second.session.session_key
    assert first.post("/account", new).status_code == 302
    assert ended == [key]
    assert (first.get("/").status_code, second.get("/").status_code) == (200, 302)
    assert first.post("/sessions/end").status_code == 302
    assert first.get("/").status_code == 302
    assert not Session.objects.exists() or not any(
        session.get_decoded().get("_auth_user_id") == str(lab.admin.pk) for session in Session.objects.all()
    )


@pytest.mark.parametrize("is_ticked", [True, False])
def test_logging_out_everywhere_revokes_tokens_if_ticked(lab, is_ticked):
    owners = [lab.admin, lab.admin, lab.member]
    tokens = [make_token(one, name=str(n), scopes=["read"], days=1)[0] for n, one in enumerate(owners)]
    tokens[0].revoke()
    client = logged_in(lab.admin)
    page = client.get("/account").content.decode()
    assert re.search(r'name="tokens" value="1" checked> <span>and revoke my 1 <a [^>]*>API token</a>', page)
    client.post("/sessions/end", {"tokens": "1"} if is_ticked else {})
    states = [ApiToken.objects.get(pk=token.pk).state for token in tokens]
    assert states == ["revoked", "revoked" if is_ticked else "usable", "usable"]
    assert 'name="tokens"' not in logged_in(lab.viewer).get("/account").content.decode()


def test_closed_account_is_logged_out_at_once_and_opens_again_with_its_memberships(lab, client, ended):
    there = logged_in(lab.member)
    link = LoginLink.objects.make(lab.member)
    staff = make_user("root", is_staff=True)
    client.force_login(staff)
    key = there.session.session_key
    assert client.post(f"/people/{lab.member.pk}", {"do": "close"}).status_code == 302
    assert there.get("/api/v1/runs").status_code == 401
    assert there.get("/").status_code == 302
    assert Client().post(f"/login/{link}").status_code == 410
    assert ended == [key]
    assert client.post(f"/people/{lab.member.pk}", {"do": "open"}).status_code == 302
    assert logged_in(lab.member).get(f"/projects/{lab.project.pk}").status_code == 200
    client.post(f"/people/{staff.pk}", {"do": "close"})
    staff.refresh_from_db()
    assert staff.is_active, "nobody closes the own account"


def test_staff_create_login_links_but_not_for_a_superuser(lab, client):
    client.force_login(make_user("root", is_staff=True))
    page = client.post(f"/people/{lab.member.pk}", {"do": "link"}).content.decode()
    link = page.partition("http://testserver")[2].partition('"')[0]
    assert Client().post(link).status_code == 302
    boss = User.objects.create_superuser("boss")
    assert client.post(f"/people/{boss.pk}", {"do": "link"}).status_code == 302
    assert not LoginLink.objects.filter(user=boss).exists()
    assert logged_in(lab.admin).post(f"/people/{lab.member.pk}", {"do": "close"}).status_code == 404
    assert logged_in(lab.admin).get("/people/").status_code == 404
