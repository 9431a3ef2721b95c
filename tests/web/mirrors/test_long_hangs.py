"""Each destination hangs amid a run: the run's telemetry is as fast as before, and later every number is there once.

HACRL_TEST_HANG_S: for how long, 20 s without it. MLflow's server is stopped by a signal, Trackio's database is locked
by another process's transaction, the processes that write TensorBoard's files are stopped as by a dead file system,
and the server of Weights & Biases accepts and never answers: there is no such server that a test could start, so the
mirror is then set to offline and writes its files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from django.db import connection

from hacrl_web.mirrors import process, retries
from hacrl_web.mirrors.mirrors import change_mirror, create_mirror
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.mirrors.rounds import MirrorScheduler
from hacrl_web.runs.models import Run, State
from tests.support.waiting import wait_until
from tests.support.web.insight_help import claimed, store
from tests.support.web.mirrored_numbers import compare, needs, stored_numbers, written_numbers
from tests.support.web.silent_destination import SilentServer
from tools.generated_runs.runs import Plan, generated_events
from workers.contract.events import Progress
from workers.contract.spec.run import RunSpec

HANG_S = float(os.environ.get("HACRL_TEST_HANG_S", "20"))
IS_SHORT = HANG_S < 120  # then the mirror's patience is short too
STEPS_BEFORE, STEPS_DURING = 8, 24
PLAN = Plan(2, 40, 2, 2, 2, 8, seed=5, variants=(("hacpo", 0.8),))
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.full,
    pytest.mark.slow,
    pytest.mark.timeout(HANG_S + 900),
]


def steps_of(run: Run) -> Iterator[list[Any]]:
    """The events of one step after the other."""
    events: list[Any] = []
    for _, event in generated_events(PLAN, 0, RunSpec.model_validate(run.spec), STEPS_BEFORE + STEPS_DURING):
        events.append(event)
        if isinstance(event, Progress):
            yield events
            events = []


@pytest.fixture
def watcher() -> Iterator[Callable[[], None]]:
    """Starts the mirrors' part of the watcher, which then ticks until the end of the test."""
    scheduler, ended = MirrorScheduler(), threading.Event()

    def tick() -> None:
        while not ended.wait(0.2):
            scheduler.tick()
        connection.close()

    thread = threading.Thread(target=tick)
    yield thread.start
    ended.set()
    if thread.ident is not None:  # the test was not skipped
        thread.join()
    scheduler.stop()


@contextlib.contextmanager
def stopped_server(server: Any) -> Iterator[None]:
    server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.signal(signal.SIGCONT)


@contextlib.contextmanager
def stopped_writers() -> Iterator[None]:
    """Every process of a mirror stops soon after its start."""
    ended = threading.Event()

    def stop() -> None:
        while not ended.wait(0.02):
            for one in list(process._living):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one._child.pid, signal.SIGSTOP)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for one in list(process._living):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one._child.pid, signal.SIGCONT)


@contextlib.contextmanager
def locked_database(mirror: Mirror) -> Iterator[None]:
    (path,) = mirror.folder.glob("*.db")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


def seconds_to_store(run: Run, steps: Iterator[list[Any]], number: int, interval_s: float) -> list[float]:
    """Of each step, from its events in the spool to their rows."""
    times = []
    for events in islice(steps, number):
        began = time.monotonic()
        store(run, *events)
        times.append(time.monotonic() - began)
        time.sleep(max(0.0, interval_s - times[-1]))
    return times


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_destination_that_hangs_costs_the_run_nothing_and_has_every_number_once_afterwards(
    kind, owner, settings, request, monkeypatch, watcher, record_property
):
    python = settings.MIRRORS_PYTHON
    needs(kind, python)
    if IS_SHORT:
        monkeypatch.setattr(process, "ANSWER_S", 8.0)
        monkeypatch.setattr(retries, "RETRY_AFTER_S", (1.0, 2.0))
    fields: dict[str, Any] = {"kind": kind}
    silent = SilentServer()
    request.addfinalizer(silent.close)
    server = request.getfixturevalue("mlflow_server") if kind == "mlflow" else None
    address = server.address if server else ""
    if server:
        fields["options"] = {"url": address}
    elif kind == "wandb":
        settings.MIRROR_ALLOW = [silent.host]
        fields |= {"options": {"mode": "online", "url": f"http://{silent.host}"}, "secret": "s" * 40}
    mirror = create_mirror(owner, owner.memberships.get().project, fields)
    run = claimed(owner, name="Swan")
    steps = steps_of(run)
    every_event = [event for events in steps_of(run) for event in events]

    watcher()
    before = seconds_to_store(run, steps, STEPS_BEFORE, 0.5)
    if kind != "wandb":
        assert wait_until(lambda: MirrorCursor.objects.filter(step__gte=STEPS_BEFORE).exists(), 120)
    hangs = {
        "tensorboard": stopped_writers, "mlflow": lambda: stopped_server(server),
        "wandb": contextlib.nullcontext, "trackio": lambda: locked_database(mirror),
    }  # fmt: skip
    with hangs[kind]():
        began = time.monotonic()
        during = seconds_to_store(run, steps, STEPS_DURING, HANG_S / STEPS_DURING)
        time.sleep(max(0.0, HANG_S - (time.monotonic() - began)))
        mirror.refresh_from_db()
        cursor = MirrorCursor.objects.get()
        assert mirror.tries > 0
        assert mirror.problem
        assert cursor.step == (0 if kind == "wandb" else STEPS_BEFORE)  # the destination has nothing more
        num_tries = mirror.tries
    medians = [statistics.median(times) for times in (before, during)]
    record_property("seconds_to_store", {"medians": medians, "slowest": [max(before), max(during)]})
    print(
        f"{kind}: hung {time.monotonic() - began:.0f} s, {num_tries} tries; storing a step took {medians} s at median"
    )
    assert medians[1] < medians[0] + 0.5  # a step that waited for the destination would take seconds

    if kind == "wandb":
        change_mirror(owner, mirror, {"options": {"mode": "offline"}})
    run.refresh_from_db()
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED)
    within_s = max(retries.RETRY_AFTER_S) + 240
    assert wait_until(lambda: MirrorCursor.objects.filter(is_done=True).exists(), within_s, pause_s=0.2)
    compare(stored_numbers(python, kind, mirror.folder, address), written_numbers(every_event))
    assert wait_until(lambda: Mirror.objects.filter(tries=0, problem="").exists())
