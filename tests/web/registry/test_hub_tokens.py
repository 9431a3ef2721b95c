"""Hub tokens: stored encrypted, never shown, used by the members of a project, and by no one else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.registry.base.children import HUB_ACCOUNT, IMPORTER, INSPECTOR, ChildResult
from hacrl_web.registry.hub_tokens.service import set_hub_token, usable_hub_token
from hacrl_web.registry.models import HubToken
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import make_member, make_user
from tests.support.web.registry_help import PASSED

pytestmark = pytest.mark.django_db
TOKEN, OTHER = "hf_SecretSecretSecret1", "hf_AnotherAnotherAnother2"


@pytest.fixture
def asked(monkeypatch) -> list[tuple[list[str], bytes]]:
    """What the child processes are asked; the hub knows each token but one of x."""
    seen: list[tuple[list[str], bytes]] = []

    def whose(arguments: Any, stdin: bytes, _: int) -> ChildResult:
        token = json.loads(stdin)["hub_token"]
        seen.append((list(arguments), stdin))
        answer = {"refused": "The hub refuses it."} if set(token) == {"x"} else {"name": f"owner-of-{len(token)}"}
        return ChildResult(json.dumps(answer).encode(), 0, False)

    def inspect(arguments: Any, stdin: bytes, _: int) -> ChildResult:
        seen.append((list(arguments), stdin))
        return ChildResult(json.dumps(PASSED).encode(), 0, False)

    def refuse(arguments: Any, stdin: bytes, _: int) -> ChildResult:
        seen.append((list(arguments), stdin))
        return ChildResult(b'{"error": "no files"}', 1, False)

    monkeypatch.setattr(HUB_ACCOUNT, "run", whose)
    monkeypatch.setattr(INSPECTOR, "run", inspect)
    monkeypatch.setattr(IMPORTER, "run", refuse)
    return seen


def logged_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def post(client: Client, path: str, **body: Any) -> Any:
    return client.post(f"/api/v1/{path}", body, content_type="application/json")


@pytest.fixture
def admin() -> Any:
    return make_user("ada")


@pytest.fixture
def project(admin) -> Any:
    return admin.memberships.get().project


def test_page_sets_replaces_and_removes_a_token_and_never_shows_it(admin, project, asked):
    client = logged_in(admin)
    for address, page in (
        ("/account/hub-token", "/account"),
        (f"/projects/{project.pk}/hub-token", project.get_absolute_url()),
    ):
        assert "None is set." in client.get(page).content.decode()
        shown = client.post(address, {"do": "set", "token": TOKEN}, follow=True).content.decode()
        assert "account <strong>owner-of-22</strong>" in shown
        assert "last used never" in shown
        shown += client.post(address, {"do": "set", "token": f" {OTHER}\n"}, follow=True).content.decode()
        assert "account <strong>owner-of-25</strong>" in shown
        refused = client.post(address, {"do": "set", "token": "x" * 20}, follow=True).content.decode()
        assert "The hub refuses it." in refused
        assert "account <strong>owner-of-25</strong>" in refused, "a refused token replaces none"
        assert TOKEN not in shown
        assert OTHER not in shown + refused
        assert "None is set." in client.post(address, {"do": "remove"}, follow=True).content.decode()
    assert not HubToken.objects.exists()


@pytest.mark.parametrize("where", ["", "projects/{}/"])
def test_api_does_the_same(admin, project, asked, where):
    client, path = logged_in(admin), where.format(project.pk) + "hub-token"
    assert client.get(f"/api/v1/{path}").json() == dict.fromkeys(
        ("works", "hub_name", "problem", "set_at", "checked_at", "last_used_at")
    ) | {"is_set": False}
    answers = [post(client, path, token=TOKEN), client.get(f"/api/v1/{path}")]
    assert [(one.status_code, one.json()["works"], one.json()["hub_name"]) for one in answers] == [
        (200, True, "owner-of-22")
    ] * 2
    refused = post(client, path, token="x" * 20)
    assert (refused.status_code, "The hub refuses it." in refused.content.decode()) == (422, True)
    assert post(client, path, token="two words").status_code == 422
    assert not any(TOKEN.encode() in one.content for one in answers)
    assert client.delete(f"/api/v1/{path}").status_code == 204
    assert client.delete(f"/api/v1/{path}").status_code == 204


def _content(path: Path) -> bytes:
    """Of a file of a backup; PostgreSQL's dump is compressed."""
    content = path.read_bytes()
    if not content.startswith(b"PGDMP"):
        return content
    return subprocess.run(["pg_restore", "--file=-", str(path)], capture_output=True, check=True).stdout


def test_token_is_plain_text_nowhere(admin, project, asked, tmp_path, caplog, transactional_db):
    logged_in(admin).post("/account/hub-token", {"token": TOKEN})
    logged_in(admin).post(f"/projects/{project.pk}/hub-token", {"token": TOKEN})
    first, second = HubToken.objects.values_list("ciphertext", flat=True)
    assert first != second
    entries = list(AuditEntry.objects.filter(kind="hub token").values("action", "after", "project_id"))
    assert [(one["action"], one["after"]["ciphertext"]) for one in entries] == [("created", "(hidden)")] * 2
    assert {one["project_id"] for one in entries} == {None, project.pk}
    call_command("backup", str(tmp_path / "saved"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    written = b"".join(_content(path) for path in files)
    assert first.encode() in written, "the backup holds the ciphertext"
    assert TOKEN.encode() not in written + caplog.text.encode()
    assert not any(TOKEN in " ".join(arguments) for arguments, _ in asked)


def test_project_token_wins_for_members_and_a_viewer_or_outsider_has_only_their_own(admin, project, asked):
    member, viewer, outsider = make_member(project), make_member(project, "viewer"), make_user()
    for user in (member, viewer, outsider):
        set_hub_token(user, f"hf_own_of_{user.pk:04}")
    own = {user: f"hf_own_of_{user.pk:04}" for user in (member, viewer, outsider)}
    assert usable_hub_token(member, project) == own[member]
    set_hub_token(project, TOKEN)
    assert usable_hub_token(admin, project) == usable_hub_token(member, project) == TOKEN
    assert {usable_hub_token(user, project) for user in (viewer, outsider)} == {own[viewer], own[outsider]}
    assert HubToken.objects.get(project=project).last_used_at is not None
    member.is_active = False
    assert usable_hub_token(member, project) == ""


def test_viewer_and_outsider_see_no_token_of_the_project_and_a_member_sets_none(admin, project, asked):
    set_hub_token(project, TOKEN)
    api, page = f"/api/v1/projects/{project.pk}/hub-token", project.get_absolute_url()
    member, viewer, outsider = map(logged_in, (make_member(project), make_member(project, "viewer"), make_user()))
    assert [one.get(api).status_code for one in (member, viewer, outsider)] == [200, 403, 404]
    for somebody, refused in ((member, 403), (viewer, 403), (outsider, 404)):
        assert post(somebody, api.removeprefix("/api/v1/"), token=OTHER).status_code == refused
        assert somebody.delete(api).status_code == refused
        assert somebody.post(page + "/hub-token", {"do": "remove"}).status_code == refused
    card = 'id="hub-token-title"'
    shown = member.get(page).content.decode()
    assert card in shown
    assert "owner-of-22" in shown
    assert card not in viewer.get(page).content.decode()
    assert viewer.post("/account/hub-token", {"token": OTHER}).status_code == 302
    assert usable_hub_token(admin, project) == TOKEN


def test_other_secret_key_is_one_sentence_and_no_error_page(admin, project, asked, settings):
    client = logged_in(admin)
    set_hub_token(project, TOKEN)
    settings.SECRET_KEY = "another key of this installation"
    client.force_login(admin)
    sentence = "cannot be read: the installation's secret key has changed. Set the token again."
    shown = client.get(project.get_absolute_url())
    assert (shown.status_code, sentence.replace("'", "&#x27;") in shown.content.decode()) == (200, True)
    answer = client.get(f"/api/v1/projects/{project.pk}/hub-token").json()
    assert (answer["works"], sentence in answer["problem"]) == (False, True)
    refused = post(client, "models", kind="hub", location="meta/gated")
    assert (refused.status_code, sentence in refused.content.decode()) == (409, True)
    set_hub_token(project, OTHER)
    assert usable_hub_token(admin, project) == OTHER


def test_row_moved_to_another_owner_is_unreadable(admin, project, asked):
    row = set_hub_token(project, TOKEN)
    thief = make_user()
    HubToken.objects.create(user=thief, ciphertext=row.ciphertext)
    with pytest.raises(FieldErrors, match="cannot be read"):
        usable_hub_token(thief, thief.memberships.get().project)


def test_inspection_and_import_of_the_hub_get_the_token_on_standard_input_alone(admin, project, asked):
    set_hub_token(project, TOKEN)
    asked.clear()
    client = logged_in(admin)
    assert post(client, "models", kind="hub", location="meta/gated").status_code == 201
    post(client, "benchmarks/fetch", kind="hub", location="meta/questions")
    assert [json.loads(stdin)["hub_token"] for _, stdin in asked[:2]] == [TOKEN, TOKEN]
    assert asked[0][0] == ["--token-on-stdin", "model", "meta/gated"]
    assert len(asked) == 2
