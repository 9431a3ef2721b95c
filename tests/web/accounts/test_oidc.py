"""Signing in at an OpenID Connect provider: by HTTP, at a real small one (oidc-provider-mock) that the test starts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from oidc_provider_mock import run_server_in_thread

from hacrl_web.accounts.models import Membership, Project, User
from hacrl_web.accounts.oidc import provider as provider_module
from hacrl_web.accounts.oidc.accounts import groups_of, user_of_claims
from hacrl_web.accounts.oidc.provider import SignInRefused
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
        self.http = httpx2.Client(timeout=20)

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
        back = self.http.post(address, data={"action": action} if action else {"sub": sub})
        assert back.status_code == 302, back.text
        self.way_back = back.headers["Location"]
        return self.http.get(self.way_back)


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
    assert jwt.decode(query["id_token_hint"][0], options={"verify_signature": False})["sub"] == "7"
    assert visitor.http.get(leaving).status_code == 200
    assert visitor.http.get(f"{visitor.ours}/models/").status_code == 302


def test_way_back_works_once_and_in_the_browser_that_began_it(visitor):
    visitor.person("7", **ADA)
    visitor.sign_in("7")
    again = visitor.http.get(visitor.way_back)  # its cookie is gone
    assert (again.status_code, "start again" in again.text) == (403, True)
    stranger = Visitor(visitor.ours, visitor.theirs)
    stranger.open_provider()
    assert "start again" in refusal(stranger.http.get(visitor.way_back))  # another state
    assert User.objects.filter(username="ada").count() == 1


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"email_verified": False}, "has not verified your e-mail address"),
        ({"email": ""}, "has not verified your e-mail address"),
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

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def forged(self, payload):
        claims = {"iss": visitor.theirs, "aud": "hacrl", "sub": "7", "exp": time.time() + 60}
        return {"id_token": jwt.encode(claims, key, "RS256"), "access_token": "x"}

    monkeypatch.setattr(provider_module.ProviderBackend, "get_token", forged)
    assert "did not confirm" in refusal(visitor.sign_in("7"))
    monkeypatch.undo()

    cache.clear()
    monkeypatch.setattr(provider_module, "TIMEOUT_S", (0.2, 0.2))
    monkeypatch.setattr("django.conf.settings.OIDC", replace(LAB, issuer="http://127.0.0.1:9"), raising=False)
    assert "does not answer" in refusal(visitor.http.get(f"{visitor.ours}/login/oidc"), 502)
    assert not User.objects.filter(provider_account__isnull=False).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://other.example"},
        {"aud": "another-client"},
        {"aud": ["hacrl", "another"], "azp": "another"},
        {"exp": None},
        {"sub": ""},
        {"nonce": "of another sign-in"},
        {"exp": 1},
    ],
    ids=["issuer", "audience", "authorized party", "no expiry", "no subject", "nonce", "expired"],
)
def test_id_token_of_another_sign_in_is_refused(change, monkeypatch, rf):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    right = {"iss": LAB.issuer, "aud": "hacrl", "sub": "7", "exp": int(time.time()) + 60, "nonce": "n"}

    def claims_of(payload):
        token = jwt.encode({k: v for k, v in payload.items() if v is not None}, key, "RS256")
        endpoints = provider_module.Endpoints("", "", "", "https://id.lab.example/keys", "", "RS256", False)
        backend = provider_module.ProviderBackend(LAB, endpoints)
        monkeypatch.setattr(backend, "get_token", lambda _: {"id_token": token, "access_token": "x"})
        monkeypatch.setattr(backend, "retrieve_matching_jwk", lambda _: key.public_key())
        monkeypatch.setattr(backend, "get_userinfo", lambda *_: {"sub": "7", "groups": ["nlp"]})
        return backend.verified_claims(rf.get("/login/oidc/callback?code=c&state=s"), "n", "v")

    assert claims_of(right)["groups"] == ["nlp"]
    with pytest.raises(SignInRefused, match="did not confirm"):
        claims_of({**right, **change})


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


def test_closed_account_is_refused_and_a_taken_name_gets_a_number(lab):
    make_user("Ada")
    ada = user_of_claims(lab, {**ADA, "sub": "7"})
    assert ada.username == "ada-2"
    User.objects.filter(pk=ada.pk).update(is_active=False)
    with pytest.raises(SignInRefused, match="closed"):
        user_of_claims(lab, {**ADA, "sub": "7"})


def test_who_comes_by_the_provider_sets_no_password_here(client, lab):
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
        "NAME": "Lab login", "ROLES": "/staff/hpc=staff, nlp=member@3,*=viewer@4", "SESSION_H": "8",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(f"HACRL_OIDC_{name}", str(value))
    roles = (GroupRole("/staff/hpc", "staff", None), GroupRole("nlp", "member", 3), GroupRole("*", "viewer", 4))
    assert provider_of_environment() == OidcProvider(
        "https://id.lab.example/realms/lab", "hacrl", "s3cret", "Lab login", roles=roles, session_h=8
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
    ],
)
def test_unusable_settings_are_named_at_the_start(monkeypatch, changes, message):
    values = {"ISSUER": "https://id.lab.example", "CLIENT_ID": "hacrl", "CLIENT_SECRET": "s", **changes}
    for name, value in values.items():
        monkeypatch.setenv(f"HACRL_OIDC_{name}", value)
    with pytest.raises(ImproperlyConfigured, match=re.escape(message)):
        provider_of_environment()
