"""API tokens: shown once, stored as a hash, limited by scopes and time, with at most the rights of a login."""

import json
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from hacrl_web.accounts.models import ApiToken, hash_token
from hacrl_web.accounts.tokens import service as tokens
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import make_run, make_user
from tests.web.test_api_shape import error_of

pytestmark = pytest.mark.django_db


def bearer(text: str) -> Client:
    """A client without cookies that sends a token."""
    return Client(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {text}"})


def token_of(user, *scopes: str, name: str = "script", days: int = 7) -> tuple[ApiToken, str]:
    return tokens.make_token(user, name=name, scopes=list(scopes or ["read"]), days=days)


def refusal(answer, status: int) -> str:
    assert answer.status_code == status, answer.content
    return str(error_of(answer)["code"])


def test_checksum_detects_a_mistyped_token():
    text = tokens.new_text()
    assert len(text) == 6 + 32 + 6
    assert tokens.is_well_formed(text)
    for place in range(len(text)):
        changed = "b" if text[place] == "a" else "a"
        assert not tokens.is_well_formed(text[:place] + changed + text[place + 1 :]), place
    assert len({tokens.new_text() for _ in range(100)}) == 100


def test_only_the_hash_of_a_token_is_stored(user):
    token, text = token_of(user)
    stored = json.dumps(list(ApiToken.objects.values()), default=str)
    assert text not in stored
    assert text[10:] not in stored
    assert token.token_hash == hash_token(text)
    assert token.hint == text[:10]


def test_token_reads_what_its_owner_may_see_and_nothing_else(user):
    mine, other = make_run(user), make_run()
    client = bearer(token_of(user)[1])
    assert [run["id"] for run in client.get("/api/v1/runs").json()["items"]] == [str(mine.pk)]
    assert client.get(f"/api/v1/runs/{other.pk}").status_code == 404
    me = client.get("/api/v1/me").json()
    assert (me["name"], me["token"]["name"]) == (user.username, "script")
    assert ApiToken.objects.get().last_used_at is not None


def test_scope_is_what_a_token_may_do(user):
    run = make_run(user)
    reader, writer = (bearer(token_of(user, scope, name=scope)[1]) for scope in ("read", "write"))
    assert refusal(reader.post(f"/api/v1/runs/{run.pk}/stop"), 403) == "scope_missing"
    run.refresh_from_db()
    assert run.desired_state == "run"
    assert refusal(writer.get("/api/v1/runs"), 403) == "scope_missing"
    assert writer.post(f"/api/v1/runs/{run.pk}/stop").status_code == 200


def test_invalid_expired_and_revoked_tokens_are_refused(user):
    token, text = token_of(user)
    for wrong in ("", "x", text[:-1], text[:-1] + ("a" if text[-1] != "a" else "b"), text + "a", "hacrl_ ü"):
        assert refusal(bearer(wrong.encode("utf-8").decode("latin-1")).get("/api/v1/me"), 401) == "token_malformed"
    assert refusal(bearer(tokens.new_text()).get("/api/v1/me"), 401) == "token_unknown"
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    answer = bearer(text).get("/api/v1/me")
    assert refusal(answer, 401) == "token_expired"
    assert answer["WWW-Authenticate"] == "Bearer"
    token.revoke()
    assert refusal(bearer(text).get("/api/v1/me"), 401) == "token_revoked"


def test_token_of_a_closed_account_is_unknown(user):
    text = token_of(user)[1]
    user.is_active = False
    user.save()
    assert refusal(bearer(text).get("/api/v1/me"), 401) == "token_unknown"


def test_wrong_token_is_refused_beside_a_valid_session(web):
    assert web.get("/api/v1/me").json()["token"] is None
    answer = web.get("/api/v1/me", headers={"Authorization": f"Bearer {tokens.new_text()}"})
    assert refusal(answer, 401) == "token_unknown"


def test_token_works_in_the_header_and_for_the_api_only(user, client):
    text = token_of(user)[1]
    for name in ("token", "access_token", "api_key", "authorization"):
        assert client.get("/api/v1/me", {name: text}).status_code == 401
    assert bearer(text).get("/runs/").status_code == 302
    assert bearer(text).get("/api/docs").status_code == 302


def test_session_still_needs_its_csrf_token(user):
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    run = make_run(user)
    assert refusal(client.post(f"/api/v1/runs/{run.pk}/stop"), 403) == "csrf_failed"
    visitor = Client(enforce_csrf_checks=True)  # a script that forgot its token
    assert refusal(visitor.post(f"/api/v1/runs/{run.pk}/stop"), 401) == "not_authenticated"
    run.refresh_from_db()
    assert run.desired_state == "run"


def test_api_creates_tokens_for_a_browser_session_only(web):
    body = {"name": "ci", "scopes": ["write", "read"], "days": 30}
    answer = web.post("/api/v1/tokens", body, content_type="application/json")
    made = answer.json()
    assert (answer.status_code, answer["Cache-Control"], made["scopes"]) == (
        201,
        "no-store, private",
        ["read", "write"],
    )
    own = bearer(made["token"])
    body["name"] = "child"
    assert refusal(own.post("/api/v1/tokens", body, content_type="application/json"), 403) == "forbidden"
    listed = own.get("/api/v1/tokens").json()["items"]
    assert [one["name"] for one in listed] == ["ci"]
    assert made["token"] not in json.dumps(listed)
    assert own.post(f"/api/v1/tokens/{made['id']}/revoke").json()["state"] == "revoked"
    assert refusal(own.get("/api/v1/me"), 401) == "token_revoked"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 81}, "name"),
        ({"name": "a\x1b[2J"}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["admin"]}, "scopes"),
        ({"days": 0}, "days"),
        ({"days": 10**9}, "days"),
        ({"days": True}, "days"),
        ({"owner": 1}, "owner"),
    ],
)
def test_odd_token_is_refused_beside_its_field(web, changes, field):
    body = {"name": "ci", "scopes": ["read"], "days": 30} | changes
    answer = web.post("/api/v1/tokens", body, content_type="application/json")
    assert answer.status_code == 422
    assert error_of(answer)["field"] == field
    assert not ApiToken.objects.exists()


def test_name_is_free_again_after_its_token_is_revoked(user):
    token, _ = token_of(user)
    with pytest.raises(FieldErrors):
        token_of(user)
    token.revoke()
    token_of(user)
    assert ApiToken.objects.count() == 2


def test_number_of_tokens_is_limited(user, monkeypatch):
    monkeypatch.setattr(tokens, "MAX_TOKENS", 1)
    token_of(user)
    with pytest.raises(FieldErrors, match="revoke one first"):
        token_of(user, name="another")


def test_page_shows_a_new_token_once(web):
    page = web.post("/account/tokens", {"name": "<b>ci</b>", "days": "30", "scopes": ["read", "write"]})
    shown = page.content.decode()
    text = shown.partition('id="made-token" value="')[2].partition('"')[0]
    assert 'data-copy="#made-token"' in shown
    assert "asks for the token: paste it there" in shown
    assert tokens.is_well_formed(text)
    assert "no-store" in page["Cache-Control"]
    assert "&lt;b&gt;ci" in shown
    assert bearer(text).get("/api/v1/me").status_code == 200
    again = web.get("/account/tokens").content.decode()
    assert text not in again
    assert text[:10] in again
    web.post(f"/account/tokens/{ApiToken.objects.get().pk}/revoke")
    assert ApiToken.objects.get().state == "revoked"


def test_tokens_of_other_users_are_not_found(client, user):
    token, _ = token_of(make_user(), name="theirs, and no word of the page")
    client.force_login(make_user(is_staff=True))
    assert client.post(f"/account/tokens/{token.pk}/revoke").status_code == 404
    assert client.post(f"/api/v1/tokens/{token.pk}/revoke").status_code == 404
    assert token.name not in client.get("/account/tokens").content.decode()
    token.refresh_from_db()
    assert token.state == "usable"


def test_too_many_requests_get_429_with_retry_after(user, settings, monkeypatch):
    cache.clear()
    monkeypatch.setattr("hacrl_web.api.time.time", lambda: 1_000_020.0)  # a minute that does not end
    settings.API_READS_PER_MINUTE, settings.API_WRITES_PER_MINUTE = 1000, 2
    run = make_run(user)
    client, other = (bearer(token_of(user, "read", "write", name=name)[1]) for name in "ab")
    stop = f"/api/v1/runs/{run.pk}/stop"
    # The limit is the user's: another token does not help, reading goes on.
    answers = [client.post(stop), other.post(stop), client.post(stop), other.post(stop)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert refusal(answers[3], 429) == "too_many_requests"
    assert int(answers[3]["Retry-After"]) == 60
    assert client.get("/api/v1/me").status_code == 200
    assert bearer(token_of(make_user(), "write")[1]).post(stop).status_code == 404
    cache.clear()
