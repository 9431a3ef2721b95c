"""What the tests of mirrors share."""

import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from hacrl_web.mirrors import follower
from hacrl_web.mirrors.process import MirrorProcess
from tests.support.waiting import wait_until
from tests.support.web.factories import make_user


@pytest.fixture(autouse=True)
def processes(monkeypatch) -> Iterator[list[MirrorProcess]]:
    """Those that write to a destination; they are ended with the test."""
    started: list[MirrorProcess] = []

    class Noted(MirrorProcess):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr(follower, "MirrorProcess", Noted)
    yield started
    for one in started:
        one.end()


@pytest.fixture
def owner(client, settings, tmp_path):
    settings.DATA_DIR = tmp_path
    user = make_user("ada")
    client.force_login(user)
    return user


@pytest.fixture
def die(monkeypatch):
    """The follower dies before it notes what has arrived."""

    def fail() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(follower, "timezone", SimpleNamespace(now=fail))
        yield patch.undo


@dataclass(frozen=True)
class MlflowServer:
    port: int
    group: int  # of its processes

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def mlflow_server(settings, tmp_path) -> Iterator[MlflowServer]:
    """An MLflow tracking server."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    words = ["server", "--backend-store-uri", f"sqlite:///{tmp_path / 'mlflow.db'}", "--workers", "1"]
    words += ["--port", str(port), "--artifacts-destination", str(tmp_path / "artifacts")]
    command = [settings.MIRRORS_PYTHON, "-m", "mlflow", *words]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with subprocess.Popen(command, start_new_session=True, env=environment) as child:
        server = MlflowServer(port, child.pid)
        try:
            assert wait_until(lambda: _answers(server.address), 240, pause_s=0.2), "the server does not start"
            yield server
        finally:
            os.killpg(server.group, signal.SIGKILL)


def _answers(address: str) -> bool:
    with suppress(OSError):
        return bool(urllib.request.urlopen(f"{address}/health", timeout=5))
    return False
