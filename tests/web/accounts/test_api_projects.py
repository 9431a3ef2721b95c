"""API of projects, people and the audit log: the rules of their pages, by session and by token."""

from __future__ import annotations

import pytest
from django.test import Client

from hacrl_web.accounts.models import Invitation, Membership
from hacrl_web.accounts.tokens.service import make_token
from tests.support.web.factories import make_member, make_user

JSON = "application/json"


def script(user, scopes=("read", "write")) -> Client:
    """A client that sends a token of the user."""
    _, text = make_token(user, name="script", scopes=list(scopes), days=1)
    return Client(headers={"Authorization": f"Bearer {text}"})


@pytest.fixture
def admin(db):
    return make_user("swan")


@pytest.fixture
def project(admin):
    return admin.memberships.get().project


def test_admin_invites_changes_roles_and_removes_members_by_token(admin, project):
    client, member = script(admin), make_member(project)
    place = f"/api/v1/projects/{project.pk}"
    answer = client.post(f"{place}/invitations", {"role": "viewer", "comment": "Ada"}, JSON)
    assert answer.status_code == 201
    assert answer["Cache-Control"] == "no-store, private"
    token = answer.json()["link"].rpartition("/")[2]
    assert Invitation.objects.usable(token).get().comment == "Ada"
    shown = client.get(place).json()
    assert [one["user"]["name"] for one in shown["members"]] == ["swan", member.username]
    assert [one["comment"] for one in shown["invitations"]] == ["Ada"]
    assert client.delete(f"{place}/invitations/{shown['invitations'][0]['id']}").status_code == 204
    assert not Invitation.objects.usable(token).exists()
    row = shown["members"][1]["id"]
    assert client.post(f"{place}/members/{row}", {"role": "admin"}, JSON).json()["role"] == "admin"
    assert client.delete(f"{place}/members/{row}").status_code == 204
    assert not Membership.objects.filter(pk=row).exists()
    entries = client.get("/api/v1/audit", {"kind": "membership"}).json()["items"]
    assert [(one["actor"], one["via"], one["action"]) for one in entries] == [
        *(("swan", "api", "deleted"), ("swan", "api", "changed")),
    ]
    odd = {"kind": "\x00membership", "q": "\x00", "since": "\x00", "project": "\x00"}  # PostgreSQL has no such text
    assert len(client.get("/api/v1/audit", odd).json()["items"]) == 2


def test_last_admin_stays_and_members_cannot_manage_members(admin, project):
    member = make_member(project)
    own = project.memberships.get(user=admin).pk
    place = f"/api/v1/projects/{project.pk}"
    assert script(admin).delete(f"{place}/members/{own}").status_code == 409
    client = script(member)
    requests = [
        client.post(f"{place}/members/{own}", {"role": "viewer"}, JSON),
        client.delete(f"{place}/members/{own}"),
        client.post(f"{place}/rename", {"name": "geese"}, JSON),
        client.post(f"{place}/invitations", {"role": "admin"}, JSON),
        client.post("/api/v1/projects", {"name": "geese"}, JSON),
        client.get("/api/v1/audit"),
    ]
    assert [one.status_code for one in requests] == [403] * 6
    assert "invitations" not in client.get(place).json()
    assert client.delete(f"{place}/members/{project.memberships.get(user=member).pk}").status_code == 204
    assert client.get(place).status_code == 404


def test_people_are_for_staff_and_a_closed_account_has_no_token(admin):
    staff = make_user(is_staff=True)
    outsider, client = script(admin), script(staff)
    assert outsider.get("/api/v1/people").status_code == 404
    assert outsider.post(f"/api/v1/people/{staff.pk}/close").status_code == 404
    assert outsider.get("/api/v1/projects").status_code == 200
    assert client.post(f"/api/v1/people/{admin.pk}/close").json()["is_active"] is False
    assert outsider.get("/api/v1/projects").status_code == 401
    assert client.post(f"/api/v1/people/{admin.pk}/open").json()["is_active"] is True
    assert outsider.get("/api/v1/projects").status_code == 401  # what was closed stays closed: make a new token
    assert script(admin).get("/api/v1/projects").status_code == 200
    assert client.post("/api/v1/projects", {"name": "geese"}, JSON).status_code == 201
