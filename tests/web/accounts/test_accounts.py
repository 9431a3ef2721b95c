"""Logging in by link and by password, and who may see what."""

from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth import hashers
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from django.utils.crypto import pbkdf2

from hacrl_web.accounts.models import LoginLink, LoginTry, User
from tests.support.web.registry_help import make_user

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse 42"


def new_link(*arguments: str) -> str:
    out = StringIO()
    call_command("login_link", *arguments, stdout=out)
    return out.getvalue().strip()


def is_logged_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_first_link_creates_an_admin_without_a_usable_password(client):
    path = new_link()
    assert path.startswith("/login/")
    admin = User.objects.get()
    assert (admin.username, admin.is_superuser, admin.has_usable_password()) == ("admin", True, False)
    for password in ("", "admin", "password", "!"):
        client.post("/login", {"username": "admin", "password": password})
        assert not is_logged_in(client)
    new_link()
    assert User.objects.count() == 1


def test_link_has_the_address_where_it_is_known(settings):
    settings.PUBLIC_URL = "https://hacrl.example.org"
    assert new_link().startswith("https://hacrl.example.org/login/")


def test_token_is_not_in_the_database():
    token = new_link().rsplit("/", 1)[1]
    assert len(token) >= 43  # 32 random bytes
    assert token not in str(list(LoginLink.objects.values()))


def test_opening_a_link_does_not_use_it_up(client):
    path = new_link()
    for _ in range(3):
        assert client.get(path).status_code == 200
        assert client.head(path).status_code == 200
    assert not is_logged_in(client)
    assert client.post(path).status_code == 302
    assert is_logged_in(client)
    other = Client()
    assert other.get(path).status_code == 410
    assert other.post(path).status_code == 410
    assert not is_logged_in(other)


def test_link_needs_a_csrf_token():
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(new_link()).status_code == 403
    assert LoginLink.objects.get().used_at is None


def test_link_expires_after_an_hour(client):
    path = new_link()
    link = LoginLink.objects.get()
    assert timedelta(minutes=59) < link.expires_at - timezone.now() <= timedelta(hours=1)
    LoginLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert client.post(path).status_code == 410
    assert not is_logged_in(client)


def test_link_of_a_closed_account_does_not_work(client):
    path = new_link()
    User.objects.update(is_active=False)
    assert client.post(path).status_code == 410
    with pytest.raises(CommandError):
        new_link()


def test_link_names_its_user(client):
    make_user("bob")
    assert client.post(new_link("--user", "bob")).status_code == 302
    assert client.session["_auth_user_id"] == str(User.objects.get(username="bob").pk)
    with pytest.raises(CommandError, match="'eve'"):
        new_link("--user", "eve")


def test_login_removes_the_sessions_that_have_expired(client):
    user = make_user("ada")
    for days in (-1, 1):
        Session.objects.create(session_key=f"day {days}", expire_date=timezone.now() + timedelta(days=days))
    client.force_login(user)
    assert set(Session.objects.values_list("session_key", flat=True)) == {"day 1", client.session.session_key}


@pytest.mark.parametrize("token", ["x", "..", "%00", "%2e%2e", "a" * 5000, "日本", "'; drop table--", "%ff"])
def test_hostile_link_tokens_do_not_log_in(client, token):
    new_link()
    for method in (client.get, client.post):
        assert method(f"/login/{token}").status_code in (404, 410)


def test_password_logs_in_and_redirects_to_next(client):
    make_user("ada", password=PASSWORD)
    response = client.post("/login", {"username": "ada", "password": PASSWORD, "next": "/models/"})
    assert response.status_code == 302
    assert response["Location"] == "/models/"


@pytest.mark.parametrize(
    ("target", "place"),
    [("/sweeps/1", "/sweeps/1"), ("//evil.example", "/"), ("", "/"), ("no-view", "no-view"), ("no:view", "/")],
)
def test_login_link_and_project_switch_redirect_on_this_host_only(client, target, place):
    user = make_user("ada")
    response = client.post(f"/login/{LoginLink.objects.make(user)}?next={target}")
    assert (response.status_code, response["Location"]) == (302, place)
    project = user.memberships.get().project_id
    response = client.post("/projects/switch", {"project": project, "next": target})
    assert (response.status_code, response["Location"]) == (302, place)


def test_wrong_password_and_unknown_user_get_the_same_page(client):
    make_user("ada", password=PASSWORD)
    make_user("keyless")  # without a password
    make_user("closed-one", password=PASSWORD, is_active=False)
    pages = {}
    for username in ("ada", "nobody", "keyless", "closed-one"):
        password = PASSWORD if username == "closed-one" else "wrong"
        response = client.post("/login", {"username": username, "password": password})
        assert response.status_code == 422
        page = response.content.decode()
        assert "Wrong user name or password." in page
        start = page.index("csrfmiddlewaretoken")
        pages[username] = (page[:start] + page[start + 100 :]).replace(username, "WHO")
    assert len(set(pages.values())) == 1


def test_unknown_user_takes_as_long_as_a_wrong_password(client, settings, monkeypatch):
    """Counted, not timed: hashing takes more than 100 ms of a login, everything else less than 20 ms."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    make_user("ada", password=PASSWORD)
    assert not make_user("link").has_usable_password()
    rounds: list[int] = []

    def counted(password, salt, iterations, **options):
        rounds.append(iterations)
        return pbkdf2(password, salt, iterations, **options)

    monkeypatch.setattr(hashers, "pbkdf2", counted)
    for username in ("ada", "nobody", "link"):
        client.post("/login", {"username": username, "password": "wrong"})
    # One hash of the same number of rounds for each.
    assert rounds == [hashers.PBKDF2PasswordHasher.iterations] * 3


def test_after_ten_wrong_passwords_the_correct_one_is_refused_too(client):
    make_user("ada", password=PASSWORD)
    for _ in range(10):
        assert client.post("/login", {"username": "ada", "password": "wrong"}).status_code == 422
    for username in ("ada", "ADA", " ada", "ａｄａ"):  # no way round by another spelling
        response = client.post("/login", {"username": username, "password": PASSWORD})
        assert response.status_code == 429
        assert b"Too many tries" in response.content
    assert LoginTry.objects.count() == 20  # ten of the name, and of the address
    elsewhere = Client(REMOTE_ADDR="192.0.2.7")
    assert elsewhere.post("/login", {"username": "ada", "password": PASSWORD}).status_code == 302


def test_login_is_possible_again_after_fifteen_minutes(client):
    make_user("ada", password=PASSWORD)
    for _ in range(10):
        client.post("/login", {"username": "ada", "password": "wrong"})
    LoginTry.objects.update(at=timezone.now() - timedelta(minutes=15, seconds=1))
    assert client.post("/login", {"username": "ada", "password": PASSWORD}).status_code == 302
    assert LoginTry.objects.count() == 0


def test_unknown_users_are_throttled_like_known_ones(client):
    for _ in range(10):
        client.post("/login", {"username": "nobody", "password": "wrong"})
    assert client.post("/login", {"username": "nobody", "password": "wrong"}).status_code == 429


@pytest.mark.parametrize(
    "addresses",
    [
        ["192.0.2.7"] * 40,
        ["192.0.2.7", "::ffff:192.0.2.7"] * 20,
        [f"2001:db8:0:1::{number:x}" for number in range(40)],  # one customer's network
    ],
)
def test_forty_names_from_one_address_are_limited(addresses):
    """An account of one's own does not help: a login that succeeds takes back its own try alone."""
    make_user("ada", password=PASSWORD)
    codes = []
    for number, address in enumerate(addresses):
        visitors = Client(REMOTE_ADDR=address), Client(REMOTE_ADDR=address)
        if number == 5:
            assert visitors[0].post("/login", {"username": "ada", "password": PASSWORD}).status_code == 302
        codes.append(visitors[1].post("/login", {"username": f"name{number}", "password": "wrong"}).status_code)
    assert codes == [422] * 30 + [429] * 10
    for elsewhere in ("192.0.2.8", "2001:db8:0:2::1"):
        answer = Client(REMOTE_ADDR=elsewhere).post("/login", {"username": "ada", "password": PASSWORD})
        assert answer.status_code == 302


def test_logout_is_a_post(client):
    client.force_login(make_user())
    assert client.get("/logout").status_code == 405
    assert is_logged_in(client)
    assert client.post("/logout").status_code == 302
    assert not is_logged_in(client)


def test_login_changes_the_session_key(client):
    client.session["visitor"] = 1
    client.get("/login")
    before = client.session.session_key
    client.post(new_link())
    assert client.session.session_key != before


def test_user_of_a_link_sets_a_first_password(client):
    client.post(new_link())
    weak = client.post("/account", {"new_password1": "12345678", "new_password2": "12345678"})
    assert weak.status_code == 422
    assert b"too common" in weak.content
    assert client.post("/account", {"new_password1": PASSWORD, "new_password2": PASSWORD}).status_code == 302
    assert is_logged_in(client), "one's own session goes on"
    assert User.objects.get().check_password(PASSWORD)
    # From now on the old password is asked for.
    assert (
        client.post("/account", {"new_password1": "other horse 43", "new_password2": "other horse 43"}).status_code
        == 422
    )
    assert User.objects.get().check_password(PASSWORD)
