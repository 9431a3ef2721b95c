"""Deleting runs: hidden at once, then removed in pieces beside the dispatcher; what is in use is kept."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.alerts.models import Alert
from hacrl_web.runs.archive import deletion, leftover_files
from hacrl_web.runs.archive.deletion import delete_run
from hacrl_web.runs.archive.leftover_files import DeletedRuns
from hacrl_web.runs.launch import again
from hacrl_web.runs.launch.again import retry
from hacrl_web.runs.limits.upkeep import delete_archived
from hacrl_web.runs.live.counts import CHANGE, FAULTS, all_counts, counts_of
from hacrl_web.runs.models import RECORDED_TABLES, Retention, Run, State, StatusChange, Sweep, TelemetryEvent
from hacrl_web.runs.storage.run_files import reading_files
from hacrl_web.runs.worker.dispatcher import Dispatcher
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import make_model, make_run, make_user, metrics
from tests.support.web.insight_help import add_checkpoint, claimed, store

pytestmark = pytest.mark.django_db
NUM_EVENTS = 450


@pytest.fixture
def run(owner) -> Run:
    """A completed run with a checkpoint and NUM_EVENTS events."""
    run = claimed(owner, name="old swan")
    add_checkpoint(run, 5)
    store(run, *(metrics(step, reward=0.5) for step in range(1, NUM_EVENTS + 1)))
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED, finished_at=timezone.now())
    run.refresh_from_db()
    return run


def by_user(run: Run) -> bool:
    try:
        delete_run(run.owner, run)
    except FieldErrors:
        return False
    return True


def by_retention(run: Run) -> bool:
    Retention.objects.update_or_create(project=run.project, defaults={"archived_days": 1})
    long_ago = timezone.now() - timedelta(days=2)
    Run.objects.filter(pk=run.pk).update(archived_at=long_ago)
    return delete_archived(run.pk)


WAYS = pytest.mark.parametrize("delete", [by_user, by_retention])


@WAYS
def test_what_monitoring_counts_never_falls(run, delete):
    for number in (1, 2):  # the second time the counts of deleted runs exist already
        for old, new in (("queued", "starting"), ("running", "lost"), ("lost", "failed")):
            run.status_changes.create(from_state=old, to_state=new, attempt=1)
        faults = {"interruptions": 2, "num_incidents": 3, "num_refused": 4}
        Run.objects.filter(pk=run.pk).update(state=State.FAILED, **faults)
        run.refresh_from_db()
        before = all_counts()
        assert delete(run)
        assert all_counts() == before
        assert [before[kind, "", ""] for kind in FAULTS] == [2 * number, 3 * number, 4 * number]
        assert before[CHANGE, "lost", "failed"] == number
        run = make_run(run.owner)
        assert all_counts() == before + counts_of([run.pk])


@WAYS
def test_deleted_run_is_hidden_at_once_and_nothing_leads_to_it(client, run, delete):
    sweep = Sweep.objects.create(owner=run.owner, name="two swans")
    Run.objects.filter(pk=run.pk).update(sweep=sweep)
    run.refresh_from_db()
    follower = retry(run.owner, run)
    marks = {"attempt": 1, "number": 0.5, "raised_seq": 1, "raised_step": 1, "raised_at": timezone.now()}
    Alert.objects.create(run=run, kind="zero_variance", agent="A", text="all alike", **marks)
    assert delete(run)
    assert Run._base_manager.get(pk=run.pk).deleted_at is not None
    for path in (f"/runs/{run.pk}/", f"/api/v1/runs/{run.pk}", f"/api/v1/runs/{run.pk}/metrics?metric=reward"):
        assert client.get(path).status_code == 404, path
    follower.refresh_from_db()
    assert (follower.retry_of, list(sweep.runs.all())) == (None, [follower])
    assert Run.objects.filter(sweep=sweep).count() == 1
    for table in (Alert, StatusChange):
        assert not table.objects.filter(run_id=run.pk).exists()
    assert AuditEntry.objects.filter(action="deleted", object_id=str(run.pk)).count() == (delete is by_retention)


@WAYS
def test_rows_are_removed_in_small_transactions_then_the_folder_then_the_run(run, delete):
    assert delete(run)
    batches: list[int] = []

    def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("DELETE") and TelemetryEvent._meta.db_table in sql and "run_id" not in sql:
            batches.append(len(params))
            assert run.run_dir.is_dir()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        assert DeletedRuns().tick() == 1
    assert max(batches) <= leftover_files.ROWS
    assert sum(batches) >= NUM_EVENTS
    assert not run.run_dir.exists()
    assert not any(table._base_manager.filter(run=run.pk).exists() for table in RECORDED_TABLES)
    assert not Run._base_manager.filter(pk=run.pk).exists()


@WAYS
@pytest.mark.parametrize("place", ["rows", "folder"])
def test_crash_in_the_middle_is_completed_by_the_next_process(run, delete, place, monkeypatch):
    assert delete(run)

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        module, name = (leftover_files.time, "sleep") if place == "rows" else (leftover_files.shutil, "rmtree")
        patch.setattr(module, name, crash)
        with pytest.raises(KeyboardInterrupt):
            DeletedRuns().tick()
    assert run.run_dir.is_dir()
    assert DeletedRuns().tick() == 1
    assert not run.run_dir.exists()
    assert not TelemetryEvent.objects.filter(run_id=run.pk).exists()


def test_folder_that_cannot_be_removed_holds_up_no_other_and_is_tried_again(run, owner, monkeypatch, caplog):
    other = claimed(owner)
    Run.objects.filter(pk=other.pk).update(state=State.FAILED)
    remove = shutil.rmtree

    def fail(path: Path) -> None:
        if path == run.run_dir:
            raise PermissionError(13, "not yours")
        remove(path)

    for one in (run, other):
        one.refresh_from_db()
        assert by_user(one)
    removal = DeletedRuns()
    with monkeypatch.context() as patch:
        patch.setattr(leftover_files.shutil, "rmtree", fail)
        assert removal.tick() == 1
    assert "not yours" in caplog.text
    assert removal.tick() == 0, "not at once"
    monkeypatch.setattr(leftover_files, "RETRY_S", 0.0)
    assert DeletedRuns().tick() == 1
    assert not run.run_dir.exists()


@pytest.mark.django_db(transaction=True)
def test_dispatcher_goes_on_while_a_folder_is_removed(run, monkeypatch):
    """Its ticks and those of its thread are counted while the removal of the folder stands still."""
    assert by_user(run)
    removing, may_end, num_ticks = threading.Event(), threading.Event(), 0
    remove, tick = shutil.rmtree, Dispatcher.tick

    def slow(path: Path) -> None:
        removing.set()
        assert may_end.wait(60)
        remove(path)

    def counted(self: Dispatcher) -> Any:
        nonlocal num_ticks
        num_ticks += removing.is_set()
        if num_ticks == 3:
            may_end.set()
        if not run.run_dir.exists() and not Run._base_manager.filter(pk=run.pk).exists():
            os.kill(os.getpid(), signal.SIGTERM)
        return tick(self)

    monkeypatch.setattr(leftover_files.shutil, "rmtree", slow)
    monkeypatch.setattr(Dispatcher, "tick", counted)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        call_command("dispatch", interval=0.01)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert num_ticks >= 3


@WAYS
def test_files_that_somebody_reads_are_kept(run, delete):
    with reading_files(run):
        assert not delete(run)
    model = make_model(make_user())  # of another project
    place = str(run.run_dir.resolve() / "checkpoints/step-000005")
    type(model).objects.filter(pk=model.pk).update(location=place)
    assert not delete(run)
    with pytest.raises(FieldErrors, match="others of another project read the files of old swan"):
        delete_run(run.owner, run)
    type(model).objects.filter(pk=model.pk).delete()
    reader = make_run(make_user(), name="reader")
    reader.spec["agents"][0]["model"] = place
    reader.save()
    assert not delete(run)
    reader.delete()
    assert delete(run)
    with pytest.raises(FieldErrors, match="was deleted a moment ago"), reading_files(run):
        pass


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("address", ["/api/v1/runs/{}/retry", "/runs/{}/retry"])
def test_retry_while_the_run_is_being_deleted_is_a_409(run, monkeypatch, address):
    """The retry has found the run, and waits for the transaction that deletes it."""
    hide, has_looked, is_hidden = deletion.hide_run, threading.Event(), threading.Event()

    def late(*_: Any) -> None:
        has_looked.set()
        assert is_hidden.wait(60)

    def slow_hide(one: Run) -> None:
        hide(one)
        is_hidden.set()
        threading.Event().wait(0.3)  # the retry asks for the row meanwhile

    monkeypatch.setattr(deletion, "hide_run", slow_hide)
    monkeypatch.setattr(again, "cannot_repeat", late)
    answers: list[Any] = []
    web = Client()
    web.force_login(run.owner)

    def ask() -> None:
        answers.append(web.post(address.format(run.pk)))
        connection.close()

    asking = threading.Thread(target=ask)
    asking.start()
    assert has_looked.wait(60)
    assert by_user(run)
    asking.join(60)
    (answer,) = answers
    assert answer.status_code == 409
    assert "old swan was deleted just now: it cannot be retried." in answer.content.decode()
    assert not Run.objects.exists()
