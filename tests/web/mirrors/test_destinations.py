"""Each destination by its own software: what it stores of a run equals the database, every number once.

The packages are those of HACRL_MIRRORS_PYTHON, or of this environment; a destination without its package is skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from hacrl_web.mirrors import process
from hacrl_web.mirrors.mirrors import create_mirror
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.mirrors.sending import MirrorSender
from hacrl_web.runs.models import Run, State
from tests.faults.proxy import Proxy
from tests.support.web.destination_readers import NUMBERS, SETTINGS, TABLES
from tests.support.web.insight_help import claimed, store
from tests.support.web.mirrored_numbers import compare, needs, run_reader, stored_numbers, written_numbers
from tests.support.web.silent_destination import SilentServer
from tools.generated_runs.runs import Plan, generated_events
from workers.contract.events import Rollout
from workers.contract.spec.run import RunSpec

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
PLAN = Plan(2, 4, 2, 4, 4, 2, seed=3, variants=(("hacpo", 0.8),))


def started_run(owner: Any, change: Callable[[Any], Any] = lambda event: event) -> tuple[Run, list[Any], list[Any]]:
    """A run of four steps of which half is stored; its events, and those of the other half. change: of each event."""
    run = claimed(owner, name="Swan ä")
    events = [change(event) for _, event in generated_events(PLAN, 0, RunSpec.model_validate(run.spec), 4)]
    half = len(events) // 2
    store(run, *events[:half])
    return run, events, events[half:]


def send_with_a_crash(mirror: Mirror, run: Run, rest: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the run is sent, and the sender dies before it notes that; then everything to the end of the run."""

    def die(cursor: MirrorCursor, **values: Any) -> None:
        if "sent_at" in values:
            raise KeyboardInterrupt
        move(cursor, **values)

    move = MirrorCursor.move
    with monkeypatch.context() as patch:
        patch.setattr(MirrorCursor, "move", die)
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
    address = request.getfixturevalue("mlflow_server").address if kind == "mlflow" else ""
    options = {"url": address} if address else {}
    project = owner.memberships.get().project
    mirror = create_mirror(owner, project, {"kind": kind, "options": options})
    settings.PUBLIC_URL = "https://hacrl.example.org"
    run, events, rest = started_run(owner)
    send_with_a_crash(mirror, run, rest, monkeypatch)
    compare(stored_numbers(python, kind, mirror.folder, address), written_numbers(events))
    settings_there, url = run_reader(python, SETTINGS[kind], mirror.folder, address)
    assert url == f"https://hacrl.example.org/runs/{run.pk}"
    assert settings_there["algorithm.name"] == run.spec["algorithm"]["name"]
    assert settings_there["agents.1.name"] == run.spec["agents"][1]["name"]
    assert len(settings_there) > 50
    if kind == "mlflow":
        assert MirrorCursor.objects.get().url.startswith(address)


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


@pytest.mark.parametrize("kind", list(TABLES))
def test_destination_has_every_rollout_once_after_a_crash(kind, owner, settings, request, monkeypatch):
    python = settings.MIRRORS_PYTHON
    needs(kind, python)
    address = request.getfixturevalue("mlflow_server").address if kind == "mlflow" else ""
    options = {"url": address} if address else {}
    fields = {"kind": kind, "options": options, "rollouts": 3}
    mirror = create_mirror(owner, owner.memberships.get().project, fields)
    run, events, rest = started_run(owner, with_hostile_texts)
    send_with_a_crash(mirror, run, rest, monkeypatch)
    texts = written_rollouts(events, 3)
    assert len(texts) == 4 * 2 * 3  # in four steps, of both agents
    assert run_reader(python, TABLES[kind], mirror.folder, address) == texts
    compare(stored_numbers(python, kind, mirror.folder, address), written_numbers(events))


def test_mlflow_server_with_artifacts_elsewhere_gets_no_rollout(owner, settings, request):
    """The client would write them to the folder or host that the server names."""
    python = settings.MIRRORS_PYTHON
    needs("mlflow", python)
    address = request.getfixturevalue("mlflow_server").address
    make = (
        "import sys; from mlflow.tracking import MlflowClient as C; C(sys.argv[1]).create_experiment('e', sys.argv[2])"
    )
    place = settings.DATA_DIR / "elsewhere"
    subprocess.run([python, "-c", make, address, str(place)], check=True, timeout=60)
    fields = {"kind": "mlflow", "options": {"url": address, "experiment": "e"}, "rollouts": 1}
    mirror = create_mirror(owner, owner.memberships.get().project, fields)
    started_run(owner)
    assert MirrorSender(mirror.pk).serve() == 0
    assert "rollouts are sent only to a server that takes artifacts itself" in MirrorCursor.objects.get().problem
    assert not place.exists()


def test_mlflow_server_that_stops_answering_amid_a_run_has_every_number_once_afterwards(
    owner, settings, request, monkeypatch
):
    python = settings.MIRRORS_PYTHON
    needs("mlflow", python)
    address = request.getfixturevalue("mlflow_server").address
    proxy = Proxy(("127.0.0.1", 0), ("127.0.0.1", int(address.rpartition(":")[2])))
    try:
        settings.MIRROR_ALLOW = [f"127.0.0.1:{proxy.port}"]
        options = {"url": f"http://127.0.0.1:{proxy.port}"}
        mirror = create_mirror(owner, owner.memberships.get().project, {"kind": "mlflow", "options": options})
        run, events, rest = started_run(owner)
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
        compare(stored_numbers(python, "mlflow", mirror.folder, address), written_numbers(events))
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
    started_run(owner)
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
