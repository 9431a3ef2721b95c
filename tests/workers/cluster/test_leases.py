"""Launcher and task by themselves: who hears nothing of the other for too long ends, and what that leaves."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from workers.cluster import launcher, task
from workers.cluster.control import ENDED, NODE
from workers.cluster.launcher import Launcher, end_jobs
from workers.cluster.schedulers import SchedulerError
from workers.cluster.task import Task
from workers.contract.cluster.job import CONTROL, JOB_NAME, read_note, refuse_job, write_note

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
OBEDIENT = [
    sys.executable,
    "-c",
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('up', flush=True);"
    "time.sleep(60)",
]


@pytest.fixture(autouse=True)
def _signal_handlers():
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


class DeafScheduler:
    """It calls every job running, and cancels none; `begin` is what its job does at its start."""

    def __init__(self, begin=lambda: None) -> None:
        self.begin, self.cancelled = begin, 0

    def start(self, name: str, command: list[str], keys: str) -> None:
        self.begin()

    def state(self, name: str) -> str:
        return "RUNNING"

    def cancel(self, name: str) -> None:
        self.cancelled += 1
        raise SchedulerError("scancel does not answer")


def test_launcher_gives_up_a_node_that_is_silent_although_its_job_counts_as_running(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(launcher, "NODE_LEASE_S", 0.4)
    scheduler = DeafScheduler(lambda: write_note(tmp_path / NODE, attempt=2, host="gpu-7", beat=1))
    one = Launcher(scheduler, tmp_path, 2, {"kind": "slurm"})
    assert one.run(["task"]) == 1
    assert scheduler.cancelled == 1
    assert "nothing was heard from node gpu-7" in capfd.readouterr().err
    assert read_note(tmp_path / JOB_NAME) == {"kind": "slurm"}  # so the next attempt waits until it has ended


def test_next_attempt_waits_as_long_as_a_task_lives_without_its_launcher(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "TASK_LEASE_S", 0.3)
    monkeypatch.setattr(launcher, "MARGIN_S", 0.2)
    write_note(tmp_path / JOB_NAME, kind="slurm")
    write_note(tmp_path / NODE, attempt=1, host="gpu-7", beat=9)
    num_calls = []
    assert not end_jobs(DeafScheduler(), tmp_path, lambda: None, most_s=0.1)
    write_note(tmp_path / ENDED, attempt=1, status=0)
    assert not end_jobs(DeafScheduler(), tmp_path, lambda: None, most_s=0.1)  # it may hold a job that waits, and keys
    (tmp_path / ENDED).unlink()
    assert (tmp_path / JOB_NAME).exists()
    assert end_jobs(DeafScheduler(), tmp_path, lambda: num_calls.append(1))
    assert len(num_calls) >= 2  # the launcher shows that it lives meanwhile
    assert not (tmp_path / JOB_NAME).exists()


@pytest.mark.parametrize("what", ["launcher is silent", "next attempt has begun", "job is refused"])
def test_task_ends_its_trainer_without_its_launcher(tmp_path, monkeypatch, what):
    if what == "launcher is silent":
        monkeypatch.setattr(task, "TASK_LEASE_S", 0.4)
    write_note(tmp_path / CONTROL, attempt=1, beat=1, signals=[])
    if what == "next attempt has begun":
        threading.Timer(1.0, lambda: write_note(tmp_path / CONTROL, attempt=2, beat=1, signals=[])).start()
    if what == "job is refused":
        threading.Timer(1.0, refuse_job, [tmp_path]).start()
    assert Task(tmp_path, 1, SLEEPER).run() == -signal.SIGKILL
    assert read_note(tmp_path / ENDED) == {"attempt": 1, "status": -9}


@pytest.mark.parametrize("is_refused", [False, True], ids=["another attempt has the run", "job is refused"])
def test_task_of_an_attempt_that_is_over_starts_nothing(tmp_path, is_refused):
    write_note(tmp_path / CONTROL, attempt=2, beat=1, signals=[])
    if is_refused:
        refuse_job(tmp_path)
    assert Task(tmp_path, 1, SLEEPER).run() == task.NOT_STARTED
    assert not (tmp_path / ENDED).exists()


@pytest.mark.parametrize("is_by_scheduler", [False, True], ids=["by the launcher", "by the scheduler's time limit"])
def test_task_passes_a_request_to_stop_on(tmp_path, is_by_scheduler):
    write_note(tmp_path / CONTROL, attempt=1, beat=1, signals=[])

    def request() -> None:
        log = tmp_path / "trainer.log"
        assert wait_until(lambda: log.exists() and "up" in log.read_text())
        if is_by_scheduler:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            write_note(tmp_path / CONTROL, attempt=1, beat=2, signals=["SIGTERM"])

    thread = threading.Thread(target=request)
    thread.start()
    assert Task(tmp_path, 1, OBEDIENT).run() == 7
    thread.join()
    assert read_note(tmp_path / ENDED)["status"] == 7


def test_keys_reach_the_trainer_by_a_pipe_and_not_by_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HACRL_CLUSTER_KEYS", '{"helpful": "k3y"}')
    write_note(tmp_path / CONTROL, attempt=1, beat=1, signals=[])
    code = (
        "import os; from workers.contract.trainer_process import read_keys;"
        "assert 'k3y' not in str(os.environ); print(read_keys()['helpful'])"
    )
    assert Task(tmp_path, 1, [sys.executable, "-c", code]).run() == 0
    assert Path(tmp_path / "trainer.log").read_text().strip() == "k3y"
