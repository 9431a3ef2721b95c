"""Trainers behind a prefix, supervised to their end: against a stand-in for srun (tests/support/fake_srun.py).

Its jobs are processes of this machine that outlive whoever submitted them, so what would be left behind is seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hacrl_web.runs.models import Run, State, Worker
from hacrl_web.runs.worker.dispatcher import Dispatcher
from hacrl_web.runs.worker.hosts import data_folder_id
from tests.support import fake_srun
from tests.support.marks import in_full
from tests.support.waiting import wait_until
from tests.support.web.factories import make_run
from tests.web.runs.worker.test_supervisor import assert_nothing_left, changes, is_running, processes_of, trained
from workers.contract.repository import ROOT
from workers.contract.trainer_process import HEARTBEAT_NAME, RunDirBusy, lock_run_dir, start_trainer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
FAKE = [sys.executable, "-m", "tests.support.fake_trainer"]
LONG = {"steps": 5000, "train_batch_size": 4, "mini_batch_size": 4}
LEASE_S = 4.0  # of the fake trainers here: above BEAT_S


@pytest.fixture
def jobs(settings, tmp_path, monkeypatch) -> Path:
    """The folder of the jobs of a stand-in for srun, in which runs are trained."""
    state = tmp_path / "jobs"
    state.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HACRL_FAKE_STEP_S", "0.02")
    monkeypatch.setenv("HACRL_FAKE_LEASE_S", str(LEASE_S))
    settings.TRAINER_COMMAND, settings.TRAINER_PREFIX = FAKE, fake_srun.prefix(state)
    yield state
    for path in state.glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(path.name), signal.SIGKILL)


def trainers_of(run: Run) -> set[int]:
    """The living processes of the trainer itself, without srun."""
    pids = set()
    for pid in processes_of(run):
        with contextlib.suppress(OSError):
            if b"fake_srun" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                pids.add(pid)
    return pids


def test_run_is_trained_behind_a_prefix_to_its_end(jobs):
    run = make_run()
    assert trained(run)
    assert changes(run) == ["queued", "starting", "running", "completed"]
    assert_nothing_left(run)
    assert len(list(jobs.iterdir())) == 1
    assert not list(run.run_dir.glob("lease.*"))


def test_stop_reaches_the_trainer_and_it_saves_a_checkpoint(jobs):
    run = make_run(training=LONG)
    assert trained(run, lambda: is_running(run), lambda: Run.objects.get(pk=run.pk).request_stop())
    assert run.state == "stopped"
    assert "killed" not in run.reason
    assert run.events.filter(type="checkpoint").exists()
    assert_nothing_left(run)


def test_trainer_that_is_killed_on_its_node_is_an_interruption(jobs):
    run = make_run(name="killed@3", checkpoint={"save_steps": 1})
    assert trained(run)
    assert (run.state, run.interruptions) == ("queued", 1)
    assert "status 137" in run.reason
    assert_nothing_left(run)


def test_trainer_that_waits_for_its_place_is_not_hung_and_a_stop_cancels_it(jobs):
    (jobs / "full").touch()
    run = make_run()
    assert trained(run, (run.run_dir / HEARTBEAT_NAME).exists, lambda: Run.objects.get(pk=run.pk).request_stop())
    assert run.state == "stopped"
    (jobs / "full").unlink()
    assert processes_of(run) == []
    assert not attempts_of(run)


def test_trainer_that_ignores_the_end_of_its_srun_is_gone_before_its_run_ends(jobs, monkeypatch):
    """srun is killed with the run's grace; its job is out of reach of signals."""
    monkeypatch.setattr("hacrl_web.runs.worker.supervisor.STOP_GRACE_S", 0.5)
    run = make_run(name="deaf", training=LONG)
    assert trained(run, lambda: is_running(run), lambda: Run.objects.get(pk=run.pk).request_stop())
    assert run.state == "stopped"
    assert_nothing_left(run)


def claimed_run() -> Run:
    """A run that a worker of another host has claimed, with its folder."""
    run = make_run(training=LONG)
    assert Run.objects.claim(run.pk, Worker("another host", 1, 0.0, data_folder_id()))
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "spec.json").write_text(json.dumps(run.spec))
    run.refresh_from_db()
    return run


def supervisor_process(run: Run, jobs: Path, attempt: int) -> subprocess.Popen[bytes]:
    """A process that starts the trainer as a supervisor does, and stays."""
    code = (
        "import sys, time; from pathlib import Path; from workers.contract.trainer_process import start_trainer;"
        f"start_trainer(Path({str(run.run_dir)!r}), {attempt}, command={FAKE!r}, prefix={fake_srun.prefix(jobs)!r});"
        "time.sleep(600)"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)


def kill_with_srun(supervisor: subprocess.Popen[bytes]) -> None:
    """Neither sees the other die, as if their host had lost its power."""
    [srun] = psutil.Process(supervisor.pid).children()
    for process in (supervisor, srun):
        process.send_signal(signal.SIGSTOP)
    for process in (supervisor, srun):
        process.kill()
        process.wait()


def attempts_of(run: Run) -> set[str]:
    """Those that have emitted an event."""
    emitted = run.run_dir / "emitted.txt"
    return {line.split()[1] for line in emitted.read_text().splitlines()} if emitted.exists() else set()


def is_free(run_dir: Path) -> bool:
    """Whether no trainer holds the run directory."""
    try:
        os.close(lock_run_dir(run_dir))
    except RunDirBusy:
        return False
    return True


@pytest.mark.parametrize("what", ["killed", *in_full("killed with srun", "frozen")])
def test_supervisor_that_is_gone_leaves_no_trainer_beside_the_next_one(jobs, what):
    """I1: the next attempt is refused while the old trainer lives, which is until its lease ends."""
    run = claimed_run()
    first = supervisor_process(run, jobs, 1)
    second = None
    try:
        assert wait_until(lambda: "1" in attempts_of(run))
        if what == "killed with srun":
            kill_with_srun(first)
        else:
            first.send_signal(signal.SIGKILL if what == "killed" else signal.SIGSTOP)
        assert len(trainers_of(run)) == 1
        with pytest.raises(RunDirBusy):
            start_trainer(run.run_dir, 2, command=FAKE, prefix=fake_srun.prefix(jobs))
        assert wait_until(lambda: is_free(run.run_dir), 5 * LEASE_S)  # no worker claims the run before
        assert trainers_of(run) == set()
        second = supervisor_process(run, jobs, 2)
        assert wait_until(lambda: "2" in attempts_of(run))
        first.send_signal(signal.SIGCONT)  # a supervisor that thaws does not revive its lease
        for _ in range(100):
            assert len(trainers_of(run)) == 1
            time.sleep(0.05)
        assert not (run.run_dir / "lease.1").exists()
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.wait()
    assert wait_until(lambda: processes_of(run) == [], 5 * LEASE_S)


@pytest.mark.parametrize("is_waiting", [False, True], ids=["trains", "waits"])
def test_stopped_run_ends_without_its_trainer_though_supervisor_and_srun_are_dead(jobs, is_waiting):
    run = claimed_run()
    if is_waiting:
        (jobs / "full").touch()
    first = supervisor_process(run, jobs, 1)
    try:
        assert wait_until((run.run_dir / HEARTBEAT_NAME).exists if is_waiting else lambda: attempts_of(run))
        assert len(trainers_of(run)) == (0 if is_waiting else 1)
    finally:
        first.kill() if is_waiting else kill_with_srun(first)
        first.wait()
    run.request_stop("stopped by ada")
    run.transition_to(State.LOST, reason="silent", attempt=1)

    def has_ended() -> bool:
        Dispatcher().requeue_lost_runs()
        run.refresh_from_db()
        return run.state == "stopped"

    assert wait_until(has_ended, LEASE_S / 2, 0.1)  # its lease is revoked: nobody waits until it ends by itself
    (jobs / "full").unlink(missing_ok=True)
    if is_waiting:  # its srun is killed with what earlier attempts left on this host
        assert processes_of(run) == []
        assert attempts_of(run) == set()
    else:
        assert_nothing_left(run)


def test_job_that_begins_after_its_supervisor_is_gone_trains_nothing(jobs):
    """On another host no worker can end the srun that waits."""
    run = claimed_run()
    command = [*FAKE, str(run.run_dir / "spec.json"), str(run.run_dir), "--attempt", "1", "--lease"]
    for count in (None, b"7"):  # revoked, or never changed again
        if count:
            (run.run_dir / "lease.1").write_bytes(count)
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert "attempt 1 of" in done.stderr
        assert "its supervisor is gone" in done.stderr
        assert attempts_of(run) == set()
