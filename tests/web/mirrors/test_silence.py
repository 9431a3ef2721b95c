"""A destination that accepts and never answers: other mirrors and the run go on, and it catches up later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hacrl_web.mirrors import follower, process
from hacrl_web.mirrors.follower import MirrorFollower, MirrorFollowers
from hacrl_web.mirrors.mirrors import change_mirror, create_mirror
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.runs.models import Run, State
from tests.support.waiting import wait_until
from tests.support.web.event_files import event_file_scalars
from tests.support.web.insight_help import store
from tests.support.web.silent_destination import SilentServer, client_without_patience
from tests.web.mirrors.test_mirrors import REST, SENT, new_run, step_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(settings, tmp_path) -> Iterator[SilentServer]:
    one = SilentServer()
    settings.MIRROR_ALLOW = [one.host]
    settings.MIRRORS_PYTHON = client_without_patience(tmp_path, settings.MIRRORS_PYTHON)
    yield one
    one.close()


@pytest.fixture
def until() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Ticks as the watcher does, until something has come."""
    followers = MirrorFollowers(pause_s=0.02)

    def look(is_reached: Callable[[], Any]) -> bool:
        followers.tick()
        return bool(is_reached())

    def wait(is_reached: Callable[[], Any]) -> None:
        assert wait_until(lambda: look(is_reached), 60)

    yield wait
    followers.stop()


def new_mirror(owner: Any, server: SilentServer | None, name: str) -> Mirror:
    """One that sends to the server, or to files without it."""
    kind = {"kind": "mlflow", "options": {"url": f"http://{server.host}"}} if server else {"kind": "tensorboard"}
    return create_mirror(owner, owner.memberships.get().project, kind | {"name": name})


def is_done(mirror: Mirror) -> Callable[[], bool]:
    return lambda: MirrorCursor.objects.filter(mirror=mirror, is_done=True).exists()


def end(run: Run) -> None:
    store(run, *step_of(3, 1.0)[1:])
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED)


def test_hanging_mirrors_delay_no_other_mirror_and_end_at_once(owner, server, until, processes):
    for number in range(3):
        new_mirror(owner, server, f"silent {number}")
    files, run = new_mirror(owner, None, "files"), new_run(owner)
    until(lambda: server.num_accepted == 3)
    end(run)
    until(is_done(files))
    assert event_file_scalars(files.files) == SENT + REST
    # All of them are still being waited for: nothing was gained by giving one up.
    assert not Mirror.objects.exclude(silence="").exists()
    change_mirror(owner, Mirror.objects.get(name="silent 0"), {"is_enabled": False})
    until(lambda: sum(one.is_alive for one in processes) == 2)  # at once, and it is no failure
    assert not Mirror.objects.exclude(silence="").exists()


def test_silent_destination_is_tried_less_and_less_often_and_then_gets_everything_once(
    client, owner, server, until, monkeypatch
):
    monkeypatch.setattr(follower, "RETRY_AFTER_S", (0.1, 0.2))
    mirror, run = new_mirror(owner, server, "silent"), new_run(owner)
    with monkeypatch.context() as patch:
        patch.setattr(process, "ANSWER_S", 0.5)
        until(lambda: server.num_accepted >= 2 and Mirror.objects.get().silence)
        page = client.get(f"/projects/{mirror.project_id}/mirrors").content.decode()
        assert "Not sending: The destination did not answer within 0.5 s." in page
    end(run)
    server.answers.set()
    until(is_done(mirror))
    assert event_file_scalars(mirror.files) == SENT + REST
    assert (Mirror.objects.get().silence, MirrorCursor.objects.get().problem) == ("", "")


def test_tries_become_rare(owner, monkeypatch):
    def fail(self: MirrorFollower, run_id: Any) -> bool:
        raise process.MirrorFailed("The destination did not answer.", is_silence=True)

    monkeypatch.setattr(MirrorFollower, "_send", fail)
    sender, waits = MirrorFollower(new_mirror(owner, None, "files")), []
    new_run(owner), new_run(owner, "Goose")
    for _ in range(6):
        sender.send_due()
        waits.append(sender._retries[None][1] - time.monotonic())
    assert waits == [pytest.approx(wait_s, abs=4) for wait_s in (5, 15, 60, 120, 300, 300)]
    assert list(sender._retries) == [None]  # of the mirror with all runs, not of one


def test_change_is_tried_at_once_and_clears_what_was_shown(owner, server, until, monkeypatch):
    mirror, run = new_mirror(owner, server, "silent"), new_run(owner)
    with monkeypatch.context() as patch:
        patch.setattr(process, "ANSWER_S", 0.5)
        until(lambda: Mirror.objects.get().silence)
    server.answers.set()
    change_mirror(owner, mirror, {"options": {"url": f"http://{server.host}", "experiment": "other"}})
    assert Mirror.objects.get().silence == ""
    until(lambda: MirrorCursor.objects.filter(run=run, seq__gt=0).exists())  # not after 5 s


def test_mirrors_that_were_silent_before_share_few_places(owner, server, until, monkeypatch):
    monkeypatch.setattr(follower, "SILENT_AT_ONCE", 1)
    followers = MirrorFollowers(pause_s=0.02)
    monkeypatch.setattr(MirrorFollower, "is_silent", property(lambda self: self.mirror.kind == "mlflow"))
    for number in range(3):
        new_mirror(owner, server, f"silent {number}")
    files, _ = new_mirror(owner, None, "files"), new_run(owner)
    followers.tick()
    assert wait_until(lambda: MirrorCursor.objects.filter(mirror=files, seq__gt=0).exists(), 60)
    assert wait_until(lambda: server.num_accepted == 1, 60)
    followers.stop()
    assert server.num_accepted == 1


def test_failure_that_was_not_expected_names_the_mirror_and_its_kind(owner, until, monkeypatch, caplog):
    mirror, _ = new_mirror(owner, None, "files"), new_run(owner)

    def fail(*_: object) -> None:
        raise ValueError("no such column")

    monkeypatch.setattr(follower, "read_rows", fail)
    until(lambda: [record for record in caplog.records if record.exc_info])
    record = next(record for record in caplog.records if record.exc_info)
    assert record.getMessage() == f"mirror {mirror.pk} (tensorboard, files) failed; will try again"
