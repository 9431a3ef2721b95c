"""Each destination by its own software: what it stores of a run equals the database, every number once.

The packages are those of HACRL_MIRRORS_PYTHON, or of this environment; a destination without its package is skipped.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hacrl_web.mirrors import process, sending
from hacrl_web.mirrors.event_rows import read_rows
from hacrl_web.mirrors.mirrors import create_mirror
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.mirrors.rollout_rows import RowBatches
from hacrl_web.mirrors.sending import MirrorSender, mirror_folder
from hacrl_web.runs.models import Run, State
from tests.faults.proxy import Proxy
from tests.support.web.destination_readers import NUMBERS, TABLES
from tests.support.web.factories import make_user
from tests.support.web.insight_help import claimed, store
from tests.support.web.silent_destination import SilentServer
from tools.generated_runs.runs import Plan, generated_events
from workers.contract.spec.run import RunSpec

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
PLAN = Plan(2, 4, 2, 4, 4, 2, seed=3, variants=(("hacpo", 0.8),))


@pytest.fixture
def owner(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    return make_user("ada")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def server(settings, tmp_path) -> Iterator[str]:
    """An MLflow tracking server."""
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    settings.MIRROR_ALLOW = [f"127.0.0.1:{port}"]
    words = ["server", "--backend-store-uri", f"sqlite:///{tmp_path / 'mlflow.db'}", "--workers", "1"]
    words += ["--port", str(port), "--artifacts-destination", str(tmp_path / "artifacts")]
    command = [settings.MIRRORS_PYTHON, "-m", "mlflow", *words]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with subprocess.Popen(command, start_new_session=True, env=environment) as child:
        try:
            _wait_for(f"{address}/health")
            yield address
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(address, timeout=1)
            return
        except OSError:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.2)


def needs(kind: str, python: str) -> None:
    if subprocess.run([python, "-c", f"import {kind}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{kind} is not installed")


def stored_run(owner: Any) -> tuple[Run, list[Any]]:
    """A run of four steps in two attempts, of which its mirror has sent half; and the events of the other half."""
    run = claimed(owner, name="Swan ä")
    events = [event for _, event in generated_events(PLAN, 0, RunSpec.model_validate(run.spec), 4)]
    half = len(events) // 2
    store(run, *events[:half])
    return run, events[half:]


def expected(run: Run) -> list[tuple[int, str, float]]:
    run.refresh_from_db()
    return sorted((row.step, name, value) for row in read_rows(run, 0).rows for name, value in row.values.items())


def read(python: str, kind: str, folder: Path, address: str = "") -> list[tuple[int, str, float]]:
    found = run_reader(python, NUMBERS[kind], folder, address)
    return sorted((step, name, value) for step, name, value in found)


def run_reader(python: str, program: str, folder: Path, address: str = "") -> Any:
    done = subprocess.run(
        [python, "-c", program, str(folder), address], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def compare(found: list[tuple[int, str, float]], wanted: list[tuple[int, str, float]]) -> None:
    """Each number once, equal but for the rounding to 32 bits."""
    assert len(found) == len(wanted) > 50
    assert [one[:2] for one in found] == [one[:2] for one in wanted]
    for (_, name, value), (_, _, other) in zip(found, wanted, strict=True):
        assert value == pytest.approx(other, rel=1e-6), name


def send_with_a_crash(mirror: Mirror, run: Run, rest: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the run is sent, and the sender dies before it notes that; then everything to the end of the run."""

    def die(cursor: MirrorCursor, **values: Any) -> None:
        if "sent_at" in values:
            raise KeyboardInterrupt
        move(cursor, **values)

    move = sending._move
    with monkeypatch.context() as patch:
        patch.setattr(sending, "_move", die)
        with pytest.raises(KeyboardInterrupt):
            MirrorSender(mirror.pk).serve()
    process.kill_all()
    assert MirrorCursor.objects.get().seq == 0
    store(run, *rest)
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED)
    MirrorSender(mirror.pk).serve()
    cursor = MirrorCursor.objects.get()
    assert (cursor.is_done, cursor.problem) == (True, "")


@pytest.mark.parametrize("kind", list(NUMBERS))
def test_destination_has_every_number_once_after_a_crash(kind, owner, settings, request, monkeypatch):
    python = settings.MIRRORS_PYTHON
    needs(kind, python)
    address = request.getfixturevalue("server") if kind == "mlflow" else ""
    options = {"url": address} if address else {}
    project = owner.memberships.get().project
    mirror = create_mirror(owner, project, {"kind": kind, "options": options})
    run, rest = stored_run(owner)
    send_with_a_crash(mirror, run, rest, monkeypatch)
    compare(read(python, kind, mirror_folder(mirror), address), expected(run))
    if kind == "mlflow":
        assert MirrorCursor.objects.get().url.startswith(address)


HOSTILE = "a\x1b[31m\u202e\n# b\n\n![c](http://c.example/c.png) **d**\r\n</code></pre><script>e()</script>\n```\n<img>"


@pytest.mark.parametrize("kind", list(TABLES))
def test_destination_has_every_rollout_once_after_a_crash(kind, owner, settings, request, monkeypatch):
    python = settings.MIRRORS_PYTHON
    needs(kind, python)
    address = request.getfixturevalue("server") if kind == "mlflow" else ""
    options = {"url": address} if address else {}
    fields = {"kind": kind, "options": options, "rollouts": 3}
    mirror = create_mirror(owner, owner.memberships.get().project, fields)
    run, rest = stored_run(owner)
    assert run.rollouts.filter(sample=0).update(completion=HOSTILE, reward=None)
    assert run.rollouts.filter(sample=1).update(completion="x" * 10_000)
    send_with_a_crash(mirror, run, rest, monkeypatch)
    run.refresh_from_db()
    rows = RowBatches(mirror, run, read_rows(run, 0).rows, 0).take(256)
    texts = [list(one.values()) for row in rows for one in row.rollouts]
    assert len(texts) == 4 * 2 * 3  # in four steps, of both agents
    assert run_reader(python, TABLES[kind], mirror_folder(mirror), address) == texts
    compare(read(python, kind, mirror_folder(mirror), address), expected(run))


def test_mlflow_server_with_artifacts_elsewhere_gets_no_rollout(owner, settings, request):
    """The client would write them to the folder or host that the server names."""
    python = settings.MIRRORS_PYTHON
    needs("mlflow", python)
    address = request.getfixturevalue("server")
    make = (
        "import sys; from mlflow.tracking import MlflowClient as C; C(sys.argv[1]).create_experiment('e', sys.argv[2])"
    )
    place = settings.DATA_DIR / "elsewhere"
    subprocess.run([python, "-c", make, address, str(place)], check=True, timeout=60)
    fields = {"kind": "mlflow", "options": {"url": address, "experiment": "e"}, "rollouts": 1}
    mirror = create_mirror(owner, owner.memberships.get().project, fields)
    stored_run(owner)
    assert MirrorSender(mirror.pk).serve() == 0
    assert "rollouts are sent only to a server that takes artifacts itself" in MirrorCursor.objects.get().problem
    assert not place.exists()


def test_mlflow_server_that_stops_answering_amid_a_run_has_every_number_once_afterwards(
    owner, settings, request, monkeypatch
):
    python = settings.MIRRORS_PYTHON
    needs("mlflow", python)
    address = request.getfixturevalue("server")
    proxy = Proxy(("127.0.0.1", 0), ("127.0.0.1", int(address.rpartition(":")[2])))
    try:
        settings.MIRROR_ALLOW = [f"127.0.0.1:{proxy.port}"]
        options = {"url": f"http://127.0.0.1:{proxy.port}"}
        mirror = create_mirror(owner, owner.memberships.get().project, {"kind": "mlflow", "options": options})
        run, rest = stored_run(owner)
        sender = MirrorSender(mirror.pk)
        assert sender.serve() > 0
        half = MirrorCursor.objects.get().seq
        proxy.pause()  # accepts, and answers nothing
        store(run, *rest)
        Run.objects.filter(pk=run.pk).update(state=State.COMPLETED)
        monkeypatch.setattr(process, "ANSWER_S", 3.0)
        assert sender.serve() == 0
        mirror.refresh_from_db()
        cursor = MirrorCursor.objects.get()
        assert (mirror.tries, mirror.problem) == (1, "The destination did not answer within 3 s.")
        assert (cursor.seq, cursor.is_done) == (half, False)
        assert not process._living
        monkeypatch.undo()
        proxy.resume()  # what was sent in vain arrives too
        MirrorCursor.objects.update(next_try_at=mirror.created_at)
        Mirror.objects.update(next_try_at=mirror.created_at)
        sender.serve()
        assert MirrorCursor.objects.get().is_done
        compare(read(python, "mlflow", mirror_folder(mirror), address), expected(run))
    finally:
        proxy.close()


@pytest.mark.parametrize("kind", ["mlflow", "wandb"])
def test_client_of_a_silent_server_is_ended_with_its_helpers(kind, owner, settings, monkeypatch):
    needs(kind, settings.MIRRORS_PYTHON)
    server = SilentServer()
    settings.MIRROR_ALLOW = [server.host]
    monkeypatch.setattr(process, "ANSWER_S", 15.0)
    options = {"url": f"http://{server.host}"} | ({"mode": "online"} if kind == "wandb" else {})
    secret = "s" * 40
    mirror = create_mirror(owner, owner.memberships.get().project, {"kind": kind, "options": options, "secret": secret})
    stored_run(owner)
    family: list[psutil.Process] = []
    end = process.MirrorProcess.end

    def noted(self: process.MirrorProcess) -> None:
        family.extend(psutil.Process(self._child.pid).children(recursive=True))
        end(self)

    monkeypatch.setattr(process.MirrorProcess, "end", noted)
    assert MirrorSender(mirror.pk).serve() == 0
    server.close()
    assert server.num_accepted > 0
    assert Mirror.objects.get().problem == "The destination did not answer within 15 s."
    assert bool(family) == (kind == "wandb")  # it has a process of its own, in a session of its own
    psutil.wait_procs(family, timeout=1)
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family)
