"""Each destination by its own software: what it stores of a run equals the database, every number once.

The packages are those of HACRL_MIRRORS_PYTHON, or of this environment; a destination without its package is skipped.
HACRL_TEST_HANG_S: how long each hangs amid a run, one try without it. MLflow's server accepts and does not answer,
another process's transaction locks Trackio's database, TensorBoard's writers are stopped as by a dead file system,
and the server of Weights & Biases accepts and never answers: there is no such server that a test could start, so the
mirror is then set to offline and writes its files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from hacrl_web.mirrors import follower, process
from hacrl_web.mirrors.follower import MirrorFollower
from hacrl_web.mirrors.mirrors import change_mirror, create_mirror
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.runs.models import Run, State
from tests.faults.proxy import Proxy
from tests.support.web.destination_readers import READERS, assert_every_number_once, needs, stored
from tests.support.web.insight_help import claimed, store
from tests.support.web.silent_destination import SilentServer
from tools.generated_runs.runs import Plan, generated_events
from workers.contract.events import Rollout
from workers.contract.spec.run import RunSpec

HANG_S = float(os.environ.get("HACRL_TEST_HANG_S", "0"))
PLAN = Plan(2, 4, 2, 4, 4, 2, seed=3, variants=(("hacpo", 0.8),))
pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.timeout(HANG_S + 900)]


def new_mirror(owner: Any, kind: str, address: str = "", **fields: Any) -> Mirror:
    options = {"url": address} if address else {}
    return create_mirror(owner, owner.memberships.get().project, {"kind": kind, "options": options} | fields)


def started_run(owner: Any, change: Callable[[Any], Any] = lambda event: event) -> tuple[Run, list[Any], list[Any]]:
    """A run of four steps of which half is stored; its events, and those of the other half. change: of each event."""
    run = claimed(owner, name="Swan ä")
    events = [change(event) for _, event in generated_events(PLAN, 0, RunSpec.model_validate(run.spec), 4)]
    half = len(events) // 2
    store(run, *events[:half])
    return run, events, events[half:]


def end(run: Run, rest: list[Any]) -> None:
    store(run, *rest)
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED)


HOSTILE = "a\x1b[31m\u202e\n# b\n\n![c](http://c.example/c.png) **d**\r\n</code></pre><script>e()</script>\n```\n<img>"
SHOWN = HOSTILE.replace("\x1b", "␛").replace("\u202e", "⟨U+202E⟩").replace("\r\n", "\n")


def with_hostile_texts(event: Any) -> Any:
    if not isinstance(event, Rollout) or event.sample > 1:
        return event
    changes = {"completion": "x" * 10_000} if event.sample else {"completion": HOSTILE, "reward": None}
    return event.model_copy(update=changes)


def written_rollouts(events: list[Any], number: int) -> list[list[Any]]:
    """As a table: of each step and agent so many, evenly spaced in the order of the events."""
    rollouts = [event for event in events if isinstance(event, Rollout)]
    shown = {HOSTILE: SHOWN, "x" * 10_000: "x" * 2000 + " … (cut)"}
    rows = []
    for one in rollouts:
        own = [other for other in rollouts if (other.step, other.agent) == (one.step, one.agent)]
        if any(own[place * len(own) // number] is one for place in range(number)):
            texts = [one.prompt, shown.get(one.completion, one.completion), one.answer]
            rows.append([one.step, one.agent, *texts, one.reward, one.finish_reason, one.num_tokens])
    return rows


@pytest.mark.parametrize("kind", list(READERS))
def test_destination_has_every_number_and_rollout_once_after_a_crash(kind, owner, settings, request, die):
    python = settings.MIRRORS_PYTHON
    needs(kind, python)
    address = request.getfixturevalue("mlflow_server").address if kind == "mlflow" else ""
    settings.MIRROR_ALLOW = [address.removeprefix("http://")]
    settings.PUBLIC_URL = "https://hacrl.example.org"
    mirror = new_mirror(owner, kind, address, rollouts=3)
    run, events, rest = started_run(owner, with_hostile_texts)
    sender = MirrorFollower(mirror)
    with pytest.raises(KeyboardInterrupt):
        sender.send_due()
    assert MirrorCursor.objects.get().seq == 0
    die()  # no longer
    end(run, rest)
    sender.send_due()
    cursor = MirrorCursor.objects.get()
    assert (cursor.is_done, cursor.problem, cursor.url.startswith(address)) == (True, "", True)
    there = stored(python, kind, mirror.files, address)
    assert_every_number_once(there, events)
    texts = written_rollouts(events, 3)
    assert len(texts) == 4 * 2 * 3  # in four steps, of both agents
    assert there.rollouts == texts
    assert there.url == f"https://hacrl.example.org/runs/{run.pk}"
    assert there.settings["algorithm.name"] == run.spec["algorithm"]["name"]
    assert there.settings["agents.1.name"] == run.spec["agents"][1]["name"]
    assert len(there.settings) > 50


@contextlib.contextmanager
def paused(proxy: Proxy) -> Iterator[None]:
    proxy.pause()  # accepts, and answers nothing
    yield
    proxy.resume()  # what was sent in vain arrives too


@contextlib.contextmanager
def locked_database(mirror: Mirror) -> Iterator[None]:
    (path,) = mirror.files.glob("*.db")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


@contextlib.contextmanager
def stopped_writers(running: list[process.MirrorProcess], patch: pytest.MonkeyPatch) -> Iterator[None]:
    class Stopped(process.MirrorProcess):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            os.kill(self._child.pid, signal.SIGSTOP)

    os.kill(running[0]._child.pid, signal.SIGSTOP)
    with patch.context() as stopping:
        stopping.setattr(follower, "MirrorProcess", Stopped)
        yield


@pytest.mark.full
@pytest.mark.parametrize("kind", list(READERS))
def test_destination_that_hangs_amid_a_run_has_every_number_once_afterwards(
    kind, owner, settings, request, monkeypatch, processes
):
    python = settings.MIRRORS_PYTHON
    needs(kind, python)
    settings.PUBLIC_URL = "https://hacrl.example.org"
    silent, fields, address = SilentServer(), {}, ""
    proxy = Proxy(
        ("127.0.0.1", 0), ("127.0.0.1", request.getfixturevalue("mlflow_server").port if kind == "mlflow" else 1)
    )
    request.addfinalizer(silent.close)
    request.addfinalizer(proxy.close)
    settings.MIRROR_ALLOW = [silent.host, f"127.0.0.1:{proxy.port}"]
    if kind == "mlflow":
        address = f"http://127.0.0.1:{proxy.port}"
    elif kind == "wandb":
        fields = {"options": {"mode": "online", "url": f"http://{silent.host}"}, "secret": "s" * 40}
    mirror = new_mirror(owner, kind, address, **fields)
    run, events, rest = started_run(owner)
    sender = MirrorFollower(mirror)
    if kind != "wandb":
        sender.send_due()
        assert MirrorCursor.objects.get().seq > 0
    hang = {
        "tensorboard": lambda: stopped_writers(processes, monkeypatch), "mlflow": lambda: paused(proxy),
        "wandb": contextlib.nullcontext, "trackio": lambda: locked_database(mirror),
    }  # fmt: skip
    with hang[kind](), monkeypatch.context() as patch:
        patch.setattr(process, "ANSWER_S", 3.0)
        patch.setattr(follower, "RETRY_AFTER_S", (0.0, 1.0))
        before = MirrorCursor.objects.filter(seq__gt=0).values_list("seq", flat=True).first()
        end(run, rest)
        began = time.monotonic()
        while not Mirror.objects.get().silence or time.monotonic() - began < HANG_S:
            sender.send_due()
        assert MirrorCursor.objects.filter(seq__gt=0).values_list("seq", flat=True).first() == before
    if kind == "wandb":
        sender = MirrorFollower(change_mirror(owner, mirror, {"options": {"mode": "offline"}}))
    sender.send_due()
    assert MirrorCursor.objects.get().is_done
    assert not Mirror.objects.get().silence
    assert_every_number_once(stored(python, kind, mirror.files, address), events)


def test_mlflow_server_with_artifacts_elsewhere_gets_no_rollout(owner, settings, request):
    """The client would write them to the folder or host that the server names."""
    python = settings.MIRRORS_PYTHON
    needs("mlflow", python)
    address = request.getfixturevalue("mlflow_server").address
    make = (
        "import sys; from mlflow.tracking import MlflowClient as C; C(sys.argv[1]).create_experiment('e', sys.argv[2])"
    )
    place = settings.DATA_DIR / "elsewhere"
    subprocess.run([python, "-c", make, address, str(place)], check=True, timeout=240)
    settings.MIRROR_ALLOW = [address.removeprefix("http://")]
    mirror = new_mirror(owner, "mlflow", rollouts=1, options={"url": address, "experiment": "e"})
    started_run(owner)
    MirrorFollower(mirror).send_due()
    assert "rollouts are sent only to a server that takes them itself" in MirrorCursor.objects.get().problem
    assert not place.exists()


def test_client_of_a_silent_server_is_ended_with_its_helpers(owner, settings, monkeypatch):
    needs("wandb", settings.MIRRORS_PYTHON)
    server, family = SilentServer(), []
    settings.MIRROR_ALLOW = [server.host]
    monkeypatch.setattr(process, "ANSWER_S", 15.0)
    fields = {"options": {"url": f"http://{server.host}", "mode": "online"}, "secret": "s" * 40}
    mirror = new_mirror(owner, "wandb", **fields)
    started_run(owner)
    kill = process.MirrorProcess.kill

    def noted(self: process.MirrorProcess) -> None:
        with contextlib.suppress(psutil.Error):  # it is gone already
            family.extend(psutil.Process(self._child.pid).children(recursive=True))
        kill(self)

    monkeypatch.setattr(process.MirrorProcess, "kill", noted)
    MirrorFollower(mirror).send_due()
    server.close()
    assert Mirror.objects.get().silence == "The destination did not answer within 15 s."
    assert family  # it has a process of its own, in a session of its own
    psutil.wait_procs(family, timeout=60)
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family)
