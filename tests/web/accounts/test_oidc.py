"""Signing in at an OpenID Connect provider: by HTTP, at a real small one (oidc-provider-mock) that the test starts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import requests
from authlib.integrations.django_client import DjangoOAuth2App
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.utils import timezone
from joserfc import jws, jwt
from joserfc.jwk import RSAKey
from oidc_provider_mock import run_server_in_thread

from hacrl_web.accounts.models import Membership, Project, User
from hacrl_web.accounts.oidc import provider as provider_module
from hacrl_web.accounts.oidc.provider import SignInRefused
from hacrl_web.accounts.oidc.service import groups_of, is_same_address, user_of_claims
from hacrl_web.accounts.tokens.service import make_token
from hacrl_web.ops.oidc_settings import GroupRole, OidcProvider, provider_of_environment, roles_of_text
from tests.support.web.registry_help import make_user

ADA = {"email": "ada@lab.example", "email_verified": True, "preferred_username": "ada", "groups": ["nlp"]}
LAB = OidcProvider("https://id.lab.example", "hacrl", "secret", name="Lab login")


@pytest.fixture
def project(db) -> Project:
    return Project.objects.make("NLP", make_user("lead"))


@pytest.fixture
def lab(project) -> OidcProvider:
    """Staff by lab-admins; members by nlp, admins by nlp-leads."""
    return replace(LAB, roles=roles_of_text(f"lab-admins=staff,nlp=member@{project.pk},nlp-leads=admin@{project.pk}"))


class Visitor:
    """A browser that is sent between this installation and the provider."""

    def __init__(self, ours: str, theirs: str) -> None:
        self.ours, self.theirs = ours, theirs
        self.http = httpx2.Client(timeout=60)

    def person(self, sub: str, **claims: object) -> None:
        assert self.http.put(f"{self.theirs}/users/{sub}", json=claims).status_code == 204

    def open_provider(self, query: str = "") -> str:
        """The address at the provider that the login button leads to."""
        page = self.http.get(f"{self.ours}/login{query}").text
        link = re.search(r'href="(/login/oidc[^"]*)">Log in with Lab login<', page)
        assert link, page
        return self.http.get(self.ours + link[1]).headers["Location"]

    def sign_in(self, sub: str, query: str = "", action: str = "") -> httpx2.Response:
        """What our callback answers."""
        address = self.open_provider(query)
        self.way_back = self.way_back_from(address, {"action": action} if action else {"sub": sub})
        return self.http.get(self.way_back)

    def way_back_from(self, address: str, data: dict[str, str]) -> str:
        back = self.http.post(address, data=data)
        assert back.status_code == 302, back.text
        return back.headers["Location"]

    def log_in(self, user: User) -> None:
        """As if by a password."""
        client = Client()
        client.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        for one in [one for one in self.http.cookies.jar if one.name == name]:
            self.http.cookies.jar.clear(one.domain, one.path, name)
        self.http.cookies.set(name, client.cookies[name].value)

    def press(self, page: str, action: str, **data: str) -> httpx2.Response:
        """Send a form of a page."""
        shown = self.http.get(self.ours + page).text
        assert f'action="{action}"' in shown
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', shown)
        return self.http.post(self.ours + action, data={"csrfmiddlewaretoken": token[1], **data})

    def link(self, sub: str) -> httpx2.Response:
        """Press the button of the account page; what our callback answers."""
        page = self.press("/account", "/account/link").text
        address = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', page)[1].replace("&amp;", "&")
        assert parse_qs(urlsplit(address).query)["prompt"] == ["login"]
        return self.http.get(self.way_back_from(address, {"sub": sub}))


@pytest.fixture
def visitor(transactional_db, live_server, settings, lab) -> Iterator[Visitor]:
    cache.clear()
    with run_server_in_thread(require_nonce=True) as server:
        issuer = f"http://localhost:{server.server_port}"
        settings.OIDC = replace(lab, issuer=issuer)
        yield Visitor(live_server.url, issuer)
    cache.clear()


def refusal(response: httpx2.Response, status: int = 403) -> str:
    """The one sentence on the login page."""
    assert response.status_code == status, response.text
    [text] = re.findall(r'role="alert">([^<]+)<', response.text)
    return text


def test_person_signs_in_at_a_real_provider_and_out_again(visitor, project):
    visitor.person("7", **ADA)
    answer = visitor.sign_in("7", query="?next=/models/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/models/")
    user = User.objects.get(username="ada")
    assert (user.email, user.has_usable_password(), user.is_staff) == ("ada@lab.example", False, False)
    assert user.provider_account == f"{visitor.theirs} 7"
    assert Membership.objects.get(user=user).role == "member"
    home = visitor.http.get(f"{visitor.ours}/models/")
    assert home.status_code == 200

    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', home.text)
    out = visitor.http.post(f"{visitor.ours}/logout", data={"csrfmiddlewaretoken": token[1]})
    assert out.status_code == 200
    leaving = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', out.text)[1].replace("&amp;", "&")
    query = parse_qs(urlsplit(leaving).query)
    assert leaving.startswith(f"{visitor.theirs}/oauth2/end_session?")
    assert query["post_logout_redirect_uri"] == [f"{visitor.ours}/login"]
    assert json.loads(jws.extract_compact(query["id_token_hint"][0].encode()).payload)["sub"] == "7"
    assert visitor.http.get(leaving).status_code == 200
    assert visitor.http.get(f"{visitor.ours}/models/").status_code == 302


def test_way_back_works_once_and_in_the_browser_that_began_it(visitor):
    visitor.person("7", **ADA)
    visitor.sign_in("7")
    again = visitor.http.get(visitor.way_back)  # its cookie is gone
    assert (again.status_code, "start again" in again.text) == (403, True)
    stranger = Visitor(visitor.ours, visitor.theirs)
    stranger.open_provider()
    assert "was not begun here" in refusal(stranger.http.get(visitor.way_back))  # another state
    assert User.objects.filter(username="ada").count() == 1


def test_address_of_a_stranger_does_not_end_a_sign_in_under_way(visitor):
    visitor.person("7", **ADA)
    way_back = visitor.way_back_from(visitor.open_provider(), {"sub": "7"})
    for query in ("?error=x", "?error=x&state=foreign", "?code=c&state=foreign"):
        assert visitor.http.get(f"{visitor.ours}/login/oidc/callback{query}").status_code == 403
    assert visitor.http.get(way_back).status_code == 302


def test_refusal_of_the_provider_ends_the_sign_in_that_it_belongs_to(visitor):
    state = parse_qs(urlsplit(visitor.open_provider()).query)["state"][0]
    callback = f"{visitor.ours}/login/oidc/callback"
    assert "did not sign you in" in refusal(visitor.http.get(f"{callback}?error=access_denied&state={state}"))
    assert "was not begun here" in refusal(visitor.http.get(f"{callback}?code=c&state={state}"))


def test_challenge_of_the_way_there_is_the_hash_of_the_verifier_that_goes_with_the_code(visitor, monkeypatch):
    visitor.person("7", **ADA)
    query = parse_qs(urlsplit(address := visitor.open_provider()).query)
    sent: list[dict[str, str]] = []
    exchange = DjangoOAuth2App.fetch_access_token

    def noted(self, *args, **payload):
        sent.append(payload)
        return exchange(self, *args, **payload)

    monkeypatch.setattr(DjangoOAuth2App, "fetch_access_token", noted)
    assert visitor.http.get(visitor.way_back_from(address, {"sub": "7"})).status_code == 302
    digest = hashlib.sha256(sent[0]["code_verifier"].encode()).digest()
    assert query["code_challenge"] == [base64.urlsafe_b64encode(digest).decode().rstrip("=")]
    assert query["code_challenge_method"] == ["S256"]


def test_session_ends_after_the_hours_of_the_setting_and_opens_only_pages_of_this_host(visitor, settings):
    settings.OIDC = replace(settings.OIDC, session_h=2)
    visitor.person("7", **ADA)
    answer = visitor.sign_in("7", query="?next=https://evil.example/")
    assert answer.headers["Location"] == "/"
    [cookie] = [one for one in answer.headers.get_list("set-cookie") if one.startswith(settings.SESSION_COOKIE_NAME)]
    assert 7100 < int(re.search(r"Max-Age=(\d+)", cookie)[1]) <= 7200
    assert 7100 < (Session.objects.get().expire_date - timezone.now()).total_seconds() <= 7200


def test_invited_person_links_the_account_and_then_comes_by_the_provider(visitor):
    visitor.person("8", **{**ADA, "groups": ["cooks"]})
    bob = make_user("bob", password="correct horse 42")
    assert "link this one under Account" in refusal(visitor.sign_in("8"))
    visitor.log_in(bob)
    answer = visitor.link("8")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/account")
    bob.refresh_from_db()
    assert bob.provider_account == f"{visitor.theirs} 8"
    browser = Visitor(visitor.ours, visitor.theirs)
    assert browser.sign_in("8").status_code == 302
    assert "Logged in as bob" in browser.http.get(f"{visitor.ours}/account").text

    visitor.log_in(make_user("carl"))
    taken = visitor.link("8")
    assert (taken.status_code, "linked to another account" in taken.text) == (409, True)


def test_account_is_linked_to_the_user_who_began_and_to_one_account_there(visitor):
    visitor.person("8", **ADA)
    bob, carl = make_user("bob"), make_user("carl")
    visitor.log_in(bob)
    page = visitor.press("/account", "/account/link").text
    address = re.search(r'content="0; url=([^"]+)"', page)[1].replace("&amp;", "&")
    visitor.log_in(carl)
    answer = visitor.http.get(visitor.way_back_from(address, {"sub": "8"}))
    assert (answer.status_code, "no longer logged in" in answer.text) == (403, True)
    User.objects.filter(pk=carl.pk).update(provider_account="https://id.lab.example 9")
    assert 'action="/account/link"' not in visitor.http.get(f"{visitor.ours}/account").text
    assert not User.objects.filter(provider_account=f"{visitor.theirs} 8").exists()


def test_who_has_a_password_unlinks_the_own_account_which_is_then_not_found_by_its_address(client, lab):
    bob = make_user("bob", password="correct horse 42", email="ada@lab.example")
    assert user_of_claims(lab, {**ADA, "sub": "7"}) == bob
    client.force_login(bob)
    assert client.post("/account/unlink").status_code == 302
    assert client.get("/account").status_code == 200  # this session goes on
    assert user_of_claims(lab, {**ADA, "sub": "7"}) != bob
    assert client.post("/account/unlink").status_code == 409


def test_staff_unlink_people_whose_provider_has_got_another_issuer(client, lab):
    ada = user_of_claims(lab, {**ADA, "sub": "7"})
    moved = replace(lab, issuer="https://new.lab.example")
    with pytest.raises(SignInRefused, match="Another account"):
        user_of_claims(moved, {**ADA, "sub": "a7"})
    client.force_login(make_user("chief", is_staff=True))
    assert f"Unlink from the sign-in provider: the account of {ada}" in client.get("/people/").content.decode()
    assert client.post(f"/people/{ada.pk}", {"do": "unlink"}).status_code == 302
    assert user_of_claims(moved, {**ADA, "sub": "a7"}) == ada


def test_api_unlinks_the_own_account_by_a_session_alone_and_that_of_others_for_staff(client, lab):
    bob = make_user("bob", password="correct horse 42", email="ada@lab.example")
    assert user_of_claims(lab, {**ADA, "sub": "7"}) == bob
    _, text = make_token(bob, name="script", scopes=["read", "write"], days=1)
    script = {"headers": {"Authorization": f"Bearer {text}"}}
    assert client.get("/api/v1/me", **script).json()["is_linked"] is True
    answer = client.post("/api/v1/me/unlink", **script)
    assert (answer.status_code, "A token cannot change how" in answer.content.decode()) == (403, True)
    other = Client()
    for one in (client, other):
        one.force_login(bob)
    assert client.post("/api/v1/me/unlink").json()["is_linked"] is False
    assert (client.get("/account").status_code, other.get("/account").status_code) == (200, 302)
    again = client.post("/api/v1/me/unlink")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "not_linked")

    ada = user_of_claims(lab, {**ADA, "sub": "8"})  # made by the provider: without a password
    path = f"/api/v1/people/{ada.pk}/unlink"
    assert client.post(path).status_code == 404  # for others than staff nobody is there
    client.force_login(ada)
    assert client.post("/api/v1/me/unlink").json()["error"]["code"] == "no_password"
    chief = make_user("chief", is_staff=True, provider_account="https://id.lab.example 3")
    client.force_login(chief)
    people = {one["name"]: one["is_linked"] for one in client.get("/api/v1/people").json()["items"]}
    assert people.items() >= {"ada": True, "bob": False, "chief": True}.items()
    assert client.post(path).json()["is_linked"] is False
    assert client.post(path).status_code == 409
    own = client.post(f"/api/v1/people/{chief.pk}/unlink")
    assert (own.status_code, own.json()["error"]["code"]) == (409, "self")
    root = make_user("root", is_superuser=True, provider_account="https://id.lab.example 1")
    assert client.post(f"/api/v1/people/{root.pk}/unlink").status_code == 403


def test_address_is_compared_letter_by_letter_and_never_finds_a_superuser(lab):
    make_user("mike", email="mike@lab.example")
    for address in ("m\u0131ke@lab.example", "mi\u212ae@lab.example", "mike@\uff4cab.example"):  # dotless i, Kelvin
        assert not is_same_address("mike@lab.example", address)
        assert user_of_claims(lab, {**ADA, "sub": address, "email": address}).username != "mike"
    make_user("root", email="root@lab.example", is_superuser=True, is_staff=True)
    with pytest.raises(SignInRefused, match="superuser"):
        user_of_claims(lab, {**ADA, "sub": "9", "email": "root@lab.example", "groups": ["lab-admins"]})


def test_provider_that_fails_is_not_asked_again_for_half_a_minute(client, db, settings, monkeypatch):
    cache.clear()
    settings.OIDC = replace(LAB, issuer="http://127.0.0.1:9")
    asked: list[str] = []

    def down(address, **_):
        asked.append(address)
        raise requests.ConnectionError

    monkeypatch.setattr(requests, "get", down)
    answers = [client.get("/login/oidc") for _ in range(2)]
    assert [one.status_code for one in answers] == [502, 502]
    assert "does not answer" in answers[1].content.decode()
    assert len(asked) == 1
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 31)
    assert client.get("/login/oidc").status_code == 502
    assert len(asked) == 2
    cache.clear()


def test_without_the_provider_its_people_set_a_password_here(client, lab, settings):
    assert settings.OIDC is None
    client.force_login(ada := user_of_claims(lab, {**ADA, "sub": "7"}))
    new = {"new_password1": "correct horse 42", "new_password2": "correct horse 42"}
    assert client.post("/account", new).status_code == 302
    ada.refresh_from_db()
    assert ada.has_usable_password()


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"email_verified": False}, "has not verified your e-mail address"),
        ({"email": ""}, "has not verified your e-mail address"),
        ({"email": "ada at the lab"}, "has not verified your e-mail address"),
        ({"email_verified": 1}, "has not verified your e-mail address"),
        ({"groups": ["cooks"]}, "has no role here"),
    ],
)
def test_refusals_are_one_sentence_and_make_no_account(visitor, claims, reason):
    visitor.person("8", **{**ADA, **claims})
    text = refusal(visitor.sign_in("8"))
    assert reason in text
    assert text.count(". ") == 0
    assert not User.objects.filter(provider_account__isnull=False).exists()


def test_denied_forged_and_unreachable_sign_ins_are_refused(visitor, monkeypatch):
    visitor.person("7", **ADA)
    assert "did not sign you in" in refusal(visitor.sign_in("7", action="deny"))

    def forged(self, *_, **__):
        claims = {"iss": visitor.theirs, "aud": "hacrl", "sub": "7", "iat": time.time(), "exp": time.time() + 60}
        return {"id_token": jwt.encode({"alg": "RS256"}, claims, WRONG_KEY), "access_token": "x"}

    monkeypatch.setattr(DjangoOAuth2App, "fetch_access_token", forged)
    assert "did not confirm" in refusal(visitor.sign_in("7"))
    monkeypatch.undo()

    cache.clear()
    monkeypatch.setattr(provider_module, "TIMEOUT_S", (0.2, 0.2))
    monkeypatch.setattr("django.conf.settings.OIDC", replace(LAB, issuer="http://127.0.0.1:9"), raising=False)
    assert "does not answer" in refusal(visitor.http.get(f"{visitor.ours}/login/oidc"), 502)
    assert not User.objects.filter(provider_account__isnull=False).exists()


RIGHT_KEY, WRONG_KEY = (RSAKey.generate_key(2048) for _ in range(2))
METADATA = {
    "issuer": LAB.issuer,
    "id_token_signing_alg_values_supported": ["RS256"],
    "auth_method": "client_secret_post",
}


def confirmed(monkeypatch, *, of_person: str = "7", signature: tuple = (RIGHT_KEY, "RS256"), **change) -> dict:
    """The claims of an ID token that is right but for `change`. of_person: of the user information."""
    now = int(time.time())
    right = {"iss": LAB.issuer, "aud": "hacrl", "sub": "7", "iat": now, "exp": now + 60, "nonce": "n"}
    claims = {k: v for k, v in {**right, **change}.items() if v is not None}
    key, algorithm = signature
    token = jwt.encode({"alg": algorithm}, claims, key, algorithms=["RS256", "RS512", "none"])
    client = provider_module.make_client(LAB, METADATA)
    monkeypatch.setattr(client, "fetch_access_token", lambda *_, **__: {"id_token": token, "access_token": "x"})
    monkeypatch.setattr(client, "fetch_jwk_set", lambda **_: {"keys": [RIGHT_KEY.as_dict(private=False)]})
    monkeypatch.setattr(client, "userinfo", lambda **_: {"sub": of_person, "groups": ["nlp"]})
    begun = {"redirect_uri": "https://hacrl.example.org/login/oidc/callback", "nonce": "n", "code_verifier": "v"}
    return provider_module.verified_claims(LAB, client, "c", begun)


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://other.example"},
        {"aud": "another-client"},
        {"aud": ["hacrl", "another"], "azp": "another"},
        {"exp": None},
        {"sub": ""},
        {"nonce": "of another sign-in"},
        {"exp": int(time.time()) - 90},
        {"iat": int(time.time()) + 3600},
        {"signature": (WRONG_KEY, "RS256")},
        {"signature": (RIGHT_KEY, "RS512")},
        {"signature": (RIGHT_KEY, "none")},
        {"of_person": "8"},
        {"aud": ["hacrl", "another"]},
        {"sub": "7" * 256},
        {"at_hash": "of another token"},
    ],
    ids=["issuer", "audience", "authorized party", "no expiry", "no subject", "nonce", "expired", "of the future",
         "another key", "another algorithm", "unsigned", "user information of another",
         "several audiences", "long subject", "another access token"],
)  # fmt: skip
def test_id_token_of_another_sign_in_is_refused(change, monkeypatch):
    assert confirmed(monkeypatch)["groups"] == ["nlp"]
    with pytest.raises(SignInRefused, match="did not confirm"):
        confirmed(monkeypatch, **change)


def test_clocks_may_differ_by_a_minute(monkeypatch):
    now = int(time.time())
    assert confirmed(monkeypatch, exp=now - 40)
    assert confirmed(monkeypatch, iat=now + 50)


def test_roles_follow_the_groups_of_each_sign_in(lab, project):
    def signed_in(*groups: str) -> tuple[User, str | None]:
        user = user_of_claims(lab, {**ADA, "sub": "7", "groups": list(groups)})
        return user, user.memberships.values_list("role", flat=True).first()

    ada, role = signed_in("nlp")
    assert (role, ada.is_staff) == ("member", False)
    assert signed_in("nlp", "nlp-leads")[1] == "admin"  # the highest
    assert signed_in("lab-admins", "nlp")[0].is_staff
    assert not signed_in("nlp")[0].is_staff
    own = Project.objects.make("Own", ada)  # by hand: the mapping does not name it
    assert signed_in("cooks")[0].memberships.get().project == own
    Membership.objects.filter(project=own).delete()
    with pytest.raises(SignInRefused, match="has no role here"):
        signed_in("cooks")
    assert User.objects.filter(username="ada").count() == 1


def test_roles_of_groups_end_with_the_days_after_the_last_sign_in_also_for_tokens_and_passwords(
    client, lab, project, settings
):
    settings.OIDC = replace(lab, roles_d=30)
    ada = user_of_claims(lab, {**ADA, "sub": "7", "groups": ["nlp", "lab-admins"]})
    own = Project.objects.make("Own", ada)
    token = make_token(ada, name="script", scopes=["read"], days=90)[1]
    bearer = {"Authorization": f"Bearer {token}"}

    def seen(days: float) -> tuple[bool, set[int]]:
        User.objects.filter(pk=ada.pk).update(provider_seen_at=timezone.now() - timedelta(days=days))
        is_staff = client.get("/api/v1/me", headers=bearer).json()["is_staff"]
        return is_staff, set(ada.memberships.values_list("project", flat=True))

    assert seen(29.9) == (True, {project.pk, own.pk})
    assert seen(30.1) == (False, {own.pk})
    user_of_claims(lab, {**ADA, "sub": "7"})
    assert seen(0) == (False, {project.pk, own.pk})
    User.objects.filter(pk=ada.pk).update(provider_seen_at=timezone.now() - timedelta(days=31))
    client.force_login(ada)  # by a password or a login link
    assert client.get(f"/projects/{project.pk}").status_code == 404


def test_only_admin_of_a_project_stays_until_there_is_another(lab, project):
    Membership.objects.filter(project=project).delete()
    user_of_claims(lab, {**ADA, "sub": "7", "groups": ["nlp-leads"]})
    ada = user_of_claims(lab, {**ADA, "sub": "7", "groups": []})
    assert ada.memberships.get().role == "admin"


def test_account_with_the_verified_address_is_the_same_person_but_not_one_of_staff(lab):
    bob = make_user("bob", email="ADA@lab.example")
    assert user_of_claims(lab, {**ADA, "sub": "7"}) == bob
    chief = make_user("chief", email="chief@lab.example", is_staff=True)
    with pytest.raises(SignInRefused, match="one of staff"):
        user_of_claims(lab, {**ADA, "sub": "9", "email": "chief@lab.example"})
    assert user_of_claims(lab, {**ADA, "sub": "9", "email": "chief@lab.example", "groups": ["lab-admins"]}) == chief
    with pytest.raises(SignInRefused, match="Another account"):  # a recycled address
        user_of_claims(lab, {**ADA, "sub": "10"})
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert user_of_claims(lab, {**ADA, "sub": "10"}) not in (bob, chief)


def test_closed_account_is_refused_and_a_taken_name_gets_a_number(lab):
    make_user("Ada")
    ada = user_of_claims(lab, {**ADA, "sub": "7"})
    assert ada.username == "ada-2"
    User.objects.filter(pk=ada.pk).update(is_active=False)
    with pytest.raises(SignInRefused, match="closed"):
        user_of_claims(lab, {**ADA, "sub": "7"})


def test_who_comes_by_the_provider_sets_no_password_here(client, lab, settings):
    settings.OIDC = lab
    client.force_login(user_of_claims(lab, {**ADA, "sub": "7"}))
    assert b"new_password1" not in client.get("/account").content
    assert client.post("/account", {"new_password1": "x", "new_password2": "x"}).status_code == 403


def test_groups_are_a_list_or_one_text_and_everybody_is_in_the_star():
    assert groups_of(LAB, {"groups": ["a", 7, "*"]}) == {"a", "*"}
    assert groups_of(LAB, {"groups": "a"}) == {"a", "*"}
    assert groups_of(LAB, {}) == {"*"}


def test_without_a_provider_there_is_neither_button_nor_address(client, db, settings):
    assert settings.OIDC is None
    assert b"login/oidc" not in client.get("/login").content
    assert client.get("/login/oidc").status_code == client.get("/login/oidc/callback").status_code == 404


def test_settings_come_from_the_environment(monkeypatch, tmp_path):
    (tmp_path / "secret").write_text("s3cret\n")
    values = {
        "ISSUER": "https://id.lab.example/realms/lab/", "CLIENT_ID": "hacrl", "CLIENT_SECRET_FILE": tmp_path / "secret",
        "NAME": "Lab login", "ROLES": "/staff/hpc=staff, nlp=member@3,*=viewer@4", "SESSION_H": "8", "ROLES_D": "7",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(f"HACRL_OIDC_{name}", str(value))
    roles = (GroupRole("/staff/hpc", "staff", None), GroupRole("nlp", "member", 3), GroupRole("*", "viewer", 4))
    assert provider_of_environment() == OidcProvider(
        "https://id.lab.example/realms/lab", "hacrl", "s3cret", "Lab login", roles=roles, session_h=8, roles_d=7
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ISSUER": ""}, "without HACRL_OIDC_ISSUER"),
        ({"ISSUER": "http://id.lab.example"}, "https address"),
        ({"ISSUER": "https://id.lab.example?x=1"}, "https address"),
        ({"CLIENT_SECRET": ""}, "needs HACRL_OIDC_CLIENT_ID"),
        ({"SCOPES": "openid"}, "must name openid and email"),
        ({"ROLES": "nlp=owner@1"}, "nlp=owner@1"),
        ({"ROLES": "nlp=member"}, "nlp=member"),
        ({"ROLES": "*=staff"}, "staff"),
        ({"SESSION_H": "0"}, "hours"),
        ({"SESSION_H": "nan"}, "hours"),
        ({"ROLES_D": "0"}, "HACRL_OIDC_ROLES_D"),
        ({"SESSION_H": "48", "ROLES_D": "1"}, "HACRL_OIDC_ROLES_D"),
    ],
)
def test_unusable_settings_are_named_at_the_start(monkeypatch, changes, message):
    values = {"ISSUER": "https://id.lab.example", "CLIENT_ID": "hacrl", "CLIENT_SECRET": "s", **changes}
    for name, value in values.items():
        monkeypatch.setenv(f"HACRL_OIDC_{name}", value)
    with pytest.raises(ImproperlyConfigured, match=re.escape(message)):
        provider_of_environment()
