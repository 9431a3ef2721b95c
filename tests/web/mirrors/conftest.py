"""What the tests of mirrors share."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hacrl_web.mirrors import process
from tests.support.web.factories import make_user


@pytest.fixture(autouse=True)
def no_process_left():
    yield
    for one in list(process._living):
        one.end()


@pytest.fixture
def owner(client, settings, tmp_path):
    settings.DATA_DIR = tmp_path
    user = make_user("ada")
    client.force_login(user)
    return user


@dataclass(frozen=True)
class MlflowServer:
    address: str
    group: int  # of its processes

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.group, number)


@pytest.fixture
def mlflow_server(settings, tmp_path) -> Iterator[MlflowServer]:
    """An MLflow tracking server."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    settings.MIRROR_ALLOW = [f"127.0.0.1:{port}"]
    words = ["server", "--backend-store-uri", f"sqlite:///{tmp_path / 'mlflow.db'}", "--workers", "1"]
    words += ["--port", str(port), "--artifacts-destination", str(tmp_path / "artifacts")]
    command = [settings.MIRRORS_PYTHON, "-m", "mlflow", *words]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with subprocess.Popen(command, start_new_session=True, env=environment) as child:
        server = MlflowServer(f"http://127.0.0.1:{port}", child.pid)
        try:
            _wait_for(f"{server.address}/health")
            yield server
        finally:
            server.signal(signal.SIGKILL)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(address, timeout=1)
            return
        except OSError:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.2)
