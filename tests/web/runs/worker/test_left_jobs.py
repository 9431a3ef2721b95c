"""Which jobs a worker cancels, and that it waits for none; that they end: test_cluster.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hacrl_web.runs.models import Run, State, Worker
from hacrl_web.runs.worker import left_jobs as module
from hacrl_web.runs.worker import tasks
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.runs.worker.left_jobs import RETRY_S, LeftJobs
from tests.support.waiting import wait_until
from tests.support.web.factories import make_run
from workers.contract.cluster.job import CANCEL_S, JOB_NAME
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

pytestmark = pytest.mark.django_db


@pytest.fixture
def cancels(monkeypatch) -> list[Run]:
    """The run directories whose cancel was begun; each process sleeps."""
    begun = []

    def start_cancel(run_dir, lock):
        begun.append(run_dir)
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[lock])

    monkeypatch.setattr(module, "start_cancel", start_cancel)
    return begun


def run_with_job(folder: str | None = None) -> Run:
    run = make_run()
    assert Run.objects.claim(run.pk, Worker("another host", 1, 0.0, folder or data_folder_id()))
    run.run_dir.mkdir(parents=True)
    (run.run_dir / JOB_NAME).write_text("{}")
    return run


def lose(run: Run) -> None:
    assert run.transition_to(State.LOST, reason="silent", attempt=1)


def test_only_jobs_without_supervisor_and_launcher_are_cancelled(cancels):
    run_with_job()  # held by its supervisor
    lose(run_with_job("another folder"))
    lost = run_with_job()
    lose(lost)
    lock, left_jobs = lock_run_dir(lost.run_dir), LeftJobs()  # as a launcher holds it
    left_jobs.look()
    assert cancels == []
    os.close(lock)
    left_jobs.look()
    assert cancels == [lost.run_dir]
    left_jobs._process.kill()
    left_jobs._process.wait()


def test_no_attempt_begins_while_a_job_is_cancelled_and_a_cancel_that_hangs_is_killed(cancels):
    now = [0.0]
    lost = run_with_job()
    lose(lost)
    left_jobs = LeftJobs(lambda: now[0])
    left_jobs.look()
    left_jobs.look()
    assert len(cancels) == 1
    with pytest.raises(RunDirBusy):
        lock_run_dir(lost.run_dir)
    now[0] = CANCEL_S + 1
    left_jobs.look()
    assert wait_until(lambda: left_jobs._process.poll() is not None)
    os.close(lock_run_dir(lost.run_dir))
    left_jobs.look()
    assert len(cancels) == 1
    now[0] = RETRY_S
    left_jobs.look()
    assert len(cancels) == 2
    left_jobs._process.kill()
    left_jobs._process.wait()


@pytest.mark.parametrize(("place", "num_looks"), [("local", 0), ("slurm", 1), ("kubernetes", 1)])
def test_workers_that_train_elsewhere_look_for_left_jobs(monkeypatch, place, num_looks):
    looks = []

    class OneHeartbeat:
        def __init__(self, check) -> None:
            self.start = check

    monkeypatch.setenv("HACRL_TRAINER_PLACE", place)
    monkeypatch.setattr(tasks, "HeartbeatThread", OneHeartbeat)
    monkeypatch.setattr(tasks.ConsumerCheck, "look", lambda _: None)
    monkeypatch.setattr(LeftJobs, "look", lambda _: looks.append(1))
    tasks._start_heartbeat()
    assert len(looks) == num_looks
