"""A destination that accepts and never answers: other mirrors and the run go on, and it catches up later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from hacrl_web.mirrors import process, retries, rounds, sending
from hacrl_web.mirrors.mirrors import change_mirror, create_mirror
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.mirrors.rounds import MirrorScheduler
from hacrl_web.mirrors.sending import MirrorSender
from hacrl_web.runs.models import Run, State
from tests.support.waiting import wait_until
from tests.support.web.event_files import event_file_scalars
from tests.support.web.insight_help import claimed, store
from tests.support.web.silent_destination import SilentServer, client_without_patience
from tests.web.mirrors.test_mirrors import SENT, evaluation, metrics, step_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]


@pytest.fixture
def server(settings, tmp_path) -> Iterator[SilentServer]:
    one = SilentServer()
    settings.MIRROR_ALLOW = [one.host]
    settings.MIRRORS_PYTHON = client_without_patience(tmp_path, settings.MIRRORS_PYTHON)
    yield one
    one.close()


@pytest.fixture
def scheduler() -> Iterator[MirrorScheduler]:
    one = MirrorScheduler()
    yield one
    one.stop()
    assert not process._living


def new_mirror(owner: Any, server: SilentServer | None, name: str) -> Mirror:
    """One that sends to the server, or to files without it."""
    kind = {"kind": "mlflow", "options": {"url": f"http://{server.host}"}} if server else {"kind": "tensorboard"}
    return create_mirror(owner, owner.memberships.get().project, kind | {"name": name})


def new_run(owner: Any, name: str = "Swan") -> Run:
    run = claimed(owner, name=name)
    store(run, evaluation(0, "A", 0.25), *step_of(1, 0.5), *step_of(2, 0.75), metrics(3, "A", **{"reward/mean": 1.0}))
    return run


def tick_until(scheduler: MirrorScheduler, is_reached: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_reached():
        assert time.monotonic() < deadline
        scheduler.tick()
        time.sleep(0.05)


def is_complete(mirror: Mirror) -> Callable[[], bool]:
    return lambda: MirrorCursor.objects.filter(mirror=mirror, is_done=True).exists()


def end(run: Run) -> None:
    store(run, *step_of(3, 1.0)[1:])
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED)


REST = [(3, "A/reward/mean", 1.0), (3, "A/ess/from B", 0.5)]


def test_more_hanging_mirrors_than_threads_delay_no_other_mirror_and_no_run(owner, server, scheduler, monkeypatch):
    monkeypatch.setattr(rounds, "BUSY_AT_ONCE", 2)
    monkeypatch.setattr(rounds, "PATIENCE_S", 0.3)
    for number in range(5):
        new_mirror(owner, server, f"silent {number}")
    files = new_mirror(owner, None, "files")  # the last in line
    run = new_run(owner)
    tick_until(scheduler, lambda: server.num_accepted >= 2)
    end(run)
    tick_until(scheduler, is_complete(files))
    assert event_file_scalars(files.folder) == SENT + REST
    # All of them are still being waited for: nothing was gained by giving one up.
    assert MirrorCursor.objects.filter(tries=0, sent_at=None).count() == 5
    began = time.monotonic()
    scheduler.stop()
    assert time.monotonic() - began < 5


def test_silent_destination_is_tried_less_and_less_often_and_then_gets_everything_once(
    owner, server, scheduler, monkeypatch
):
    monkeypatch.setattr(process, "ANSWER_S", 0.4)
    monkeypatch.setattr(retries, "RETRY_AFTER_S", (0.2, 0.4))
    mirror, run = new_mirror(owner, server, "silent"), new_run(owner)
    tick_until(scheduler, lambda: Mirror.objects.get().tries == 2)
    assert Mirror.objects.get().problem == "The destination did not answer within 0.4 s."
    end(run)
    monkeypatch.setattr(process, "ANSWER_S", 20.0)
    server.answers.set()
    tick_until(scheduler, is_complete(mirror))
    tick_until(scheduler, lambda: not scheduler._busy or all(one.task.done() for one in scheduler._busy.values()))
    assert event_file_scalars(mirror.folder) == SENT + REST
    mirror.refresh_from_db()
    cursor = MirrorCursor.objects.get()
    assert (mirror.tries, mirror.problem, cursor.tries, cursor.problem) == (0, "", 0, "")


def test_silence_about_one_run_holds_the_mirror_back_with_all_runs_and_says_so(client, owner, server, monkeypatch):
    monkeypatch.setattr(process, "ANSWER_S", 0.3)
    mirror = new_mirror(owner, server, "silent")
    first, second = new_run(owner), new_run(owner, "Goose")
    sender = MirrorSender(mirror.pk)
    assert sender.serve() == 0
    assert server.num_accepted == 1
    assert sender.serve() == 0
    assert server.num_accepted == 1  # not before its next try
    mirror.refresh_from_db()
    assert timedelta(seconds=3) < mirror.next_try_at - timezone.now() <= timedelta(seconds=5)
    path = f"/projects/{mirror.project_id}/mirrors"
    (state,) = client.get(f"/api/v1{path}").json()["items"]
    assert (state["num_tries"], state["problem"]) == (1, "The destination did not answer within 0.3 s.")
    assert state["next_try_at"]
    page = client.get(path).content.decode()
    assert "Not sending: The destination did not answer within 0.3 s." in page
    assert "1 try without an answer; the next " in page
    for run in (first, second):
        (state,) = client.get(f"/api/v1/runs/{run.pk}/mirrors").json()["items"]
        assert state["problem"] == "The destination did not answer within 0.3 s."
        assert "next try" in client.get(f"/runs/{run.pk}/mirrors").content.decode()
    # The run that nobody has tried comes first; the other one does not keep it from its turn.
    Mirror.objects.update(next_try_at=timezone.now())
    MirrorCursor.objects.update(next_try_at=timezone.now())
    assert [run.name for run in mirror.due_runs()] == ["Goose", "Swan"]
    change_mirror(owner, mirror, {"sends": "new"})
    assert Mirror.objects.get().tries == 0


def test_paused_mirror_gives_up_at_once(owner, server, scheduler):
    mirror = new_mirror(owner, server, "silent")
    new_run(owner)
    tick_until(scheduler, lambda: server.num_accepted == 1)
    change_mirror(owner, mirror, {"is_enabled": False})
    tick_until(scheduler, lambda: not process._living, within_s=5)
    assert (Mirror.objects.get().tries, MirrorCursor.objects.get().tries) == (0, 0)
    tick_until(scheduler, lambda: not scheduler._senders, within_s=5)


def test_change_during_a_silence_is_tried_at_once(owner, server, monkeypatch):
    """The change falls between the last answer of the watcher's rounds and the note of the silence."""
    mirror, run = new_mirror(owner, server, "silent"), new_run(owner)

    def ask_while_it_is_changed(self: Any, **request: Any) -> Any:
        change_mirror(owner, Mirror.objects.get(), {"options": {"url": f"http://{server.host}/other"}})
        self.end()
        raise process.MirrorSilent("The destination did not answer.")

    monkeypatch.setattr(process.MirrorProcess, "ask", ask_while_it_is_changed)
    assert MirrorSender(mirror.pk).serve() == 0
    row, cursor = Mirror.objects.get(), MirrorCursor.objects.get(run=run)
    assert (row.tries, row.problem, row.next_try_at <= timezone.now()) == (0, "", True)
    assert (cursor.tries, cursor.problem) == (0, "")


def test_silence_of_the_earlier_destination_does_not_hold_back_the_new_one(owner, server, monkeypatch):
    mirror, _ = new_mirror(owner, None, "files"), new_run(owner)
    sender = MirrorSender(mirror.pk)
    assert sender.serve() > 0
    Mirror.objects.update(options={"url": f"http://{server.host}"}, kind="mlflow")
    ask = process.MirrorProcess.ask

    def ask_silent_one(self: Any, **request: Any) -> Any:
        if request["op"] == "close" and not request["status"]:
            self.end()
            raise process.MirrorSilent("The destination did not answer.")
        return ask(self, **request)

    monkeypatch.setattr(process.MirrorProcess, "ask", ask_silent_one)
    monkeypatch.setattr(Mirror, "due_runs", lambda mirror: Run.objects.none())
    sender.serve()
    assert not process._living
    assert (Mirror.objects.get().tries, MirrorCursor.objects.get().tries) == (0, 0)


def test_mirrors_that_were_silent_before_share_few_threads(owner, server, scheduler, monkeypatch):
    monkeypatch.setattr(rounds, "SILENT_AT_ONCE", 1)
    for number in range(3):
        new_mirror(owner, server, f"silent {number}")
    Mirror.objects.update(tries=1)
    files, _ = new_mirror(owner, None, "files"), new_run(owner)
    tick_until(scheduler, lambda: MirrorCursor.objects.filter(mirror=files, seq__gt=0).exists())
    tick_until(scheduler, lambda: server.num_accepted == 1)
    assert sum(one.was_silent for one in scheduler._busy.values()) == 1


def test_after_a_silence_rows_go_in_small_parts_that_grow(owner, monkeypatch):
    sizes = []
    ask = process.MirrorProcess.ask

    def noted(self: Any, **request: Any) -> Any:
        sizes.append(len(request.get("rows", ())))
        return ask(self, **request)

    monkeypatch.setattr(process.MirrorProcess, "ask", noted)
    monkeypatch.setattr(sending, "ROWS_AT_ONCE", 4)
    mirror, run = new_mirror(owner, None, "files"), claimed(owner)
    store(run, *(event for step in range(1, 9) for event in step_of(step, step / 8)))
    MirrorCursor.objects.create(mirror=mirror, run=run, tries=1)
    sender = MirrorSender(mirror.pk)
    assert sender.serve() == 8
    sender.forget_all()
    assert sizes == [0, 1, 2, 4, 1]  # the opening; 4 / 4, twice as many each time, at most 4, and the last one
    rows = event_file_scalars(mirror.folder)
    assert [row for row in rows if row[1] == "A/reward/mean"] == [
        (step, "A/reward/mean", step / 8) for step in range(1, 9)
    ]


def test_failure_that_was_not_expected_names_the_mirror_its_kind_and_the_run(owner, scheduler, monkeypatch, caplog):
    mirror, run = new_mirror(owner, None, "files"), new_run(owner)

    def fail(*_: object) -> None:
        raise ValueError("no such column")

    monkeypatch.setattr(sending, "read_rows", fail)
    scheduler.tick()
    wait_until(lambda: all(one.task.done() for one in scheduler._busy.values()))
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.getMessage() == (
        f"mirror {mirror.pk} (tensorboard, files), run {run.pk} (Swan) failed; will try again"
    )
