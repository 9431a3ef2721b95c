"""The WebSocket through a real server: what it refuses, and when it ends; which origins are ours."""

import contextlib
import time
from uuid import uuid4

import pytest
from django.contrib.sessions.models import Session
from django.db import OperationalError
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from hacrl_web.accounts.login.sessions import end_sessions
from hacrl_web.accounts.models import Membership
from hacrl_web.accounts.people.service import remove_member, set_active
from hacrl_web.runs.live import broadcaster, consumers
from hacrl_web.runs.live.same_origin import is_same_origin
from hacrl_web.runs.messages import pubsub
from tests.support.web.factories import make_user
from tests.support.web.live import Browser, claimed, emit
from tests.support.web.live import owner as owner
from tests.support.web.live import real_redis as real_redis
from tests.support.web.live import server as server
from tests.support.web.live import tab as tab

pytestmark = pytest.mark.django_db(transaction=True)


class TestRefusals:
    @pytest.mark.parametrize(
        "origin",
        [
            "http://evil.example",
            "http://127.0.0.1:1",
            "http://127.0.0.1",
            "null",
            "file://",
            "http://127.0.0.1.evil.example",
        ],
    )
    def test_other_origin_is_refused(self, server, owner, client, origin):
        with pytest.raises(InvalidStatus) as caught:
            Browser(server, owner, client, origin=origin)
        assert caught.value.response.status_code == 403

    def test_no_origin_is_refused(self, tab, server):
        with pytest.raises(InvalidStatus):
            connect(
                f"ws://{server.address}/ws", legacy=True, additional_headers={"Cookie": f"hacrl_session={tab.cookie}"}
            )

    def test_visitor_without_login_is_refused(self, server):
        with pytest.raises(InvalidStatus):
            connect(f"ws://{server.address}/ws", legacy=True, origin=f"http://{server.address}")

    def test_foreign_run_is_as_good_as_none(self, tab):
        foreign = claimed(make_user())
        emit(foreign, 3)
        answers = []
        for run_id in (str(foreign.pk), str(uuid4()), "not-an-id", None, 7):
            tab.send(op="sub", run=run_id, after=0)
            answers.append(tab.receive())
        assert {(a["op"], a["code"]) for a in answers} == {("error", "not_found")}

    def test_ended_session_closes_the_socket(self, server, owner, client, monkeypatch):
        monkeypatch.setattr(consumers, "SESSION_CHECK_S", 0.2)
        one = Browser(server, owner, client)
        one.send(op="ping")
        assert one.receive()["op"] == "pong"
        Session.objects.all().delete()
        with pytest.raises(ConnectionClosed) as caught:
            one.receive()
        assert caught.value.rcvd.code == consumers.SESSION_ENDED

    def test_subscription_refused_by_a_busy_database_closes_the_socket_for_another_try(self, tab, owner, monkeypatch):
        run = claimed(owner)
        emit(run, 3)
        real, tries = consumers.find_visible, []

        def find_visible(*arguments):
            tries.append(1)
            if len(tries) == 1:
                raise OperationalError("database is locked")
            return real(*arguments)

        monkeypatch.setattr(consumers, "find_visible", find_visible)
        tab.sub(run)
        with pytest.raises(ConnectionClosed) as caught:
            tab.receive()
        assert caught.value.rcvd.code == consumers.TRY_AGAIN_LATER == 1013
        tab.open()
        tab.sub(run)
        tab.until(lambda: tab.synced)
        assert tab.seqs == [1, 2, 3]

    def test_sender_that_fails_unexpectedly_closes_the_socket_and_says_so_in_the_log(
        self, tab, owner, monkeypatch, caplog
    ):
        def events_frame(*_):
            raise KeyError("unexpected")

        monkeypatch.setattr(consumers, "events_frame", events_frame)
        run = claimed(owner)
        emit(run, 1)
        tab.sub(run)
        with pytest.raises(ConnectionClosed) as caught:
            tab.until(lambda: tab.cursor == 1)
        assert caught.value.rcvd.code == consumers.SENDER_FAILED == 1011
        assert "a socket failed; the browser will reconnect" in caplog.text

    def test_run_that_the_user_may_no_longer_see_is_dropped(self, server, owner, client, monkeypatch):
        monkeypatch.setattr(consumers, "SESSION_CHECK_S", 0.2)
        staff = make_user(is_staff=True)
        one = Browser(server, staff, client)
        run, own = claimed(owner), claimed(staff)
        one.sub(run)
        one.until(lambda: one.synced)
        type(staff).objects.filter(pk=staff.pk).update(is_staff=False)
        frames = []
        one.until(lambda: frames.append(one.receive()) or frames[-1].get("code") == "not_found")
        one.sub(run, after=0)
        assert one.receive()["code"] == "not_found"
        one.sub(own, after=0)
        one.until(lambda: len(one.synced) == 2)
        one.socket.close()

    def test_too_many_subscriptions_are_refused(self, tab, owner, monkeypatch):
        monkeypatch.setattr(consumers, "MAX_SUBSCRIPTIONS", 2)
        for _ in range(3):
            tab.sub(claimed(owner), after=0)
        codes = []
        while "too_many" not in codes:
            codes.append(tab.receive().get("code"))

    def test_too_many_subscriptions_of_one_user_are_refused_over_all_sockets(
        self, tab, owner, server, client, monkeypatch
    ):
        monkeypatch.setattr(consumers, "MAX_SUBSCRIPTIONS_OF_USER", 2)
        other, stranger = Browser(server, owner, client), Browser(server, make_user(is_staff=True), client)
        for browser in (tab, other):
            watched = claimed(owner)
            browser.sub(watched, after=0)
            browser.until(lambda browser=browser: browser.synced)
        other.sub(claimed(owner), after=0)
        assert other.receive()["code"] == "too_many"
        other.sub(watched, after=0)  # watched already: this takes no further place
        other.until(lambda: len(other.synced) == 2)
        stranger.sub(claimed(owner), after=0)
        stranger.until(lambda: stranger.synced)
        other.socket.close()
        stranger.socket.close()

    def test_too_many_sockets_of_one_user_are_closed_and_a_free_place_is_given_again(
        self, tab, owner, server, client, monkeypatch
    ):
        monkeypatch.setattr(consumers, "MAX_SOCKETS_OF_USER", 2)
        second, third = Browser(server, owner, client), Browser(server, owner, client)
        with pytest.raises(ConnectionClosed) as caught:
            third.receive()
        assert caught.value.rcvd.code == consumers.TOO_MANY_SOCKETS == 4430
        second.socket.close()
        time.sleep(0.3)
        fourth = Browser(server, owner, client)
        fourth.send(op="ping")
        assert fourth.receive()["op"] == "pong"
        fourth.socket.close()

    def test_logging_out_ends_the_sockets_of_that_session_at_once(self, server, owner, client):
        """Session checks come every minute: what ends it within a second is the logout itself."""
        first = Browser(server, owner, client)
        cookie = client.cookies["hacrl_session"].value
        client.cookies.clear()
        other_login = Browser(server, owner, client)
        client.cookies["hacrl_session"] = cookie
        assert client.post("/logout", headers={"host": server.address}).status_code == 302
        with pytest.raises(ConnectionClosed) as caught:
            first.receive()
        assert caught.value.rcvd.code == consumers.SESSION_ENDED
        other_login.send(op="ping")
        assert other_login.receive()["op"] == "pong"
        other_login.socket.close()

    @pytest.mark.parametrize("ending", ["everywhere", "closed account"])
    def test_sessions_that_are_ended_from_elsewhere_end_their_sockets_at_once(self, server, owner, client, ending):
        tab = Browser(server, owner, client)
        if ending == "everywhere":
            end_sessions(owner)
        else:
            set_active(make_user(is_staff=True), owner, False)
        with pytest.raises(ConnectionClosed) as caught:
            tab.receive()
        assert caught.value.rcvd.code == consumers.SESSION_ENDED

    @pytest.mark.usefixtures("real_redis")
    def test_logout_in_another_web_process_ends_the_socket_through_redis(self, server, owner, client):
        browser = Browser(server, owner, client)
        run = claimed(owner)
        browser.sub(run)
        browser.until(lambda: browser.synced)

        def until_closed() -> None:
            while True:  # the broadcaster may not be subscribed to Redis yet
                pubsub.publish(pubsub.LOGOUT_CHANNEL, broadcaster.session_digest(browser.cookie))
                with contextlib.suppress(TimeoutError):
                    browser.receive(0.5)

        with pytest.raises(ConnectionClosed) as caught:
            until_closed()
        assert caught.value.rcvd.code == consumers.SESSION_ENDED

    @pytest.mark.usefixtures("real_redis")
    @pytest.mark.parametrize("process", ["this", "another"])
    def test_who_is_out_of_the_project_sees_its_runs_no_more_at_once(self, server, owner, client, monkeypatch, process):
        run, guest = claimed(owner), make_user()
        own = claimed(guest)
        place = Membership.objects.create(project=run.project, user=guest, role="viewer")
        browser = Browser(server, guest, client)
        for one in (run, own):
            browser.sub(one, after=0)
        browser.until(lambda: len(browser.synced) == 2)
        if process == "another":  # what is done there reaches this one through Redis alone
            while not pubsub.client().pubsub_numsub(pubsub.RIGHTS_CHANNEL)[0][1]:
                time.sleep(0.02)
            monkeypatch.setattr(broadcaster, "_in_each_broadcaster", lambda act: None)
            monkeypatch.setattr(pubsub.guard, "_closed_until", 0.0)  # closed by a launch: no broker here
        remove_member(place)
        frame = browser.receive()
        assert (frame["op"], frame["code"], frame["run"]) == ("error", "not_found", str(run.pk))
        emit(run, 2)
        emit(own, 2)
        while len(browser.seqs) < 2:
            assert browser.receive()["run"] == str(own.pk)
        browser.socket.close()

    def test_flood_closes_the_socket(self, tab):
        def flood() -> None:
            for _ in range(2000):
                tab.send(op="ping")
            while True:
                tab.receive()

        with pytest.raises(ConnectionClosed) as caught:
            flood()
        assert caught.value.rcvd.code == consumers.FLOODED

    def test_deleted_run_is_told(self, tab, owner):
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        run.delete()
        frames = []
        tab.until(lambda: frames.append(tab.receive()) or frames[-1].get("code") == "not_found")


@pytest.mark.parametrize(
    ("origin", "host", "scheme", "is_ours"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", "ws", True),
        ("https://127.0.0.1:8000", "127.0.0.1:8000", "ws", False),
        ("https://127.0.0.1:8000", "127.0.0.1:8000", "wss", True),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", "wss", False),
        ("https://127.0.0.1", "127.0.0.1", "wss", True),
        ("https://127.0.0.1:443", "127.0.0.1", "wss", True),
        ("http://127.0.0.1", "127.0.0.1", "wss", False),
        ("http://127.0.0.1", "127.0.0.1:80", "ws", True),
        ("http://[::1]:8000", "[::1]:8000", "ws", True),
        ("http://localhost:8000", "127.0.0.1:8000", "ws", False),
        ("http://127.0.0.1:8001", "127.0.0.1:8000", "ws", False),
        ("http://evil.example", "evil.example", "ws", False),
        ("http://user@127.0.0.1:8000", "127.0.0.1:8000", "ws", False),
        ("http://127.0.0.1:8000/x", "127.0.0.1:8000", "ws", False),
        ("http://127.0.0.1:99999", "127.0.0.1:99999", "ws", False),
        ("ftp://127.0.0.1:8000", "127.0.0.1:8000", "ws", False),
        ("null", "127.0.0.1:8000", "ws", False),
        ("", "127.0.0.1:8000", "ws", False),
    ],
)
def test_same_origin_is_scheme_host_and_port(settings, origin, host, scheme, is_ours):
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
    headers = [(b"origin", origin.encode()), (b"host", host.encode())]
    assert is_same_origin({"headers": headers, "scheme": scheme}) is is_ours


@pytest.mark.parametrize(
    ("is_trusted", "says", "is_ours"),
    [
        (True, [b"https"], True),
        (True, [b"http"], False),
        (True, [], False),
        (True, [b"https"] * 2, False),
        (False, [b"https"], False),
    ],
)
def test_scheme_is_the_proxys_only_where_the_settings_trust_it(settings, is_trusted, says, is_ours):
    settings.ALLOWED_HOSTS = ["hacrl.example"]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if is_trusted else None
    headers = [(b"origin", b"https://hacrl.example"), (b"host", b"hacrl.example")]
    headers += [(b"x-forwarded-proto", value) for value in says]
    assert is_same_origin({"headers": headers, "scheme": "ws"}) is is_ours
