"""Starting and ending a trainer process: one at a time, none left over."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.support.waiting import wait_until
from workers.contract.trainer_process import SCRATCH_NAME, RunDirBusy, lock_run_dir, start_trainer

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "print(c.pid, flush=True); time.sleep(60)",
]


def is_alive(pid: int) -> bool:
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_second_trainer_of_a_run_is_refused_while_the_first_lives(tmp_path):
    trainer = start_trainer(tmp_path, 1, command=SLEEPER)
    try:
        with pytest.raises(RunDirBusy):
            start_trainer(tmp_path, 2, command=SLEEPER)
    finally:
        assert trainer.end(grace_s=5) == -signal.SIGTERM
    os.close(lock_run_dir(tmp_path))  # free again


@pytest.mark.parametrize("station", ["os.pipe", "workers.contract.trainer_process.kill_marked"])
def test_run_is_not_locked_by_a_start_that_fails(tmp_path, monkeypatch, station):
    def fail(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(station, fail)
    with pytest.raises(OSError, match="Too many open files"):
        start_trainer(tmp_path, 1, command=SLEEPER)
    os.close(lock_run_dir(tmp_path))


def test_trainer_that_ignores_term_is_killed_with_its_children(tmp_path):
    trainer = start_trainer(tmp_path, 1, command=STUBBORN)
    log = tmp_path / "trainer.log"
    assert wait_until(lambda: log.read_text().strip().isdigit())
    child = int(log.read_text())
    assert trainer.end(grace_s=0.2) == -signal.SIGKILL
    assert wait_until(lambda: not is_alive(child))


OWN_SESSION = [
    sys.executable,
    "-c",
    "import subprocess, sys, time;"
    "from workers.contract.trainer_process import die_with_supervisor; die_with_supervisor();"
    "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True);"
    "print(c.pid, flush=True); time.sleep(60)",
]


def test_what_a_trainer_starts_in_a_session_of_its_own_is_gone_when_kill_returns(tmp_path):
    trainer = start_trainer(tmp_path, 1, command=OWN_SESSION)
    log = tmp_path / "trainer.log"
    assert wait_until(lambda: log.read_text().strip().isdigit())
    scratch = tmp_path / "elsewhere"
    scratch.mkdir()
    (tmp_path / SCRATCH_NAME).symlink_to(scratch)
    trainer.kill()
    assert not is_alive(int(log.read_text()))
    assert not scratch.exists()
    assert not (tmp_path / SCRATCH_NAME).is_symlink()


def test_what_a_trainer_starts_in_a_session_of_its_own_ends_with_the_supervisor(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from workers.contract.trainer_process import start_trainer;"
        f"start_trainer(Path({str(tmp_path)!r}), 1, command={OWN_SESSION!r}); time.sleep(60)"
    )
    log = tmp_path / "trainer.log"
    with subprocess.Popen([sys.executable, "-c", code]) as supervisor:
        assert wait_until(lambda: log.exists() and log.read_text().strip().isdigit())
        supervisor.kill()
    assert wait_until(lambda: not is_alive(int(log.read_text())), seconds=2)


def test_next_attempt_ends_what_the_one_before_left(tmp_path):
    """Its trainer has ended, and its supervisor was killed before it could look."""
    trainer = start_trainer(tmp_path, 1, command=OWN_SESSION)
    log = tmp_path / "trainer.log"
    assert wait_until(lambda: log.read_text().strip().isdigit())
    child = int(log.read_text())
    trainer.process.kill()
    trainer.process.wait()
    assert is_alive(child)
    other = tmp_path / "another run"
    other.mkdir()
    for folder in (other, tmp_path):
        assert is_alive(child)
        start_trainer(folder, 2, command=SLEEPER).kill()
    assert not is_alive(child)


def test_late_kill_of_an_attempt_leaves_the_next_one_alone(tmp_path):
    """A supervisor that was frozen looks again when its trainer has died and another worker trains the run."""
    before = start_trainer(tmp_path, 1, command=OWN_SESSION)
    before.process.kill()
    before.process.wait()
    after = start_trainer(tmp_path, 11, command=SLEEPER)
    scratch = tmp_path / "elsewhere"
    scratch.mkdir()
    (tmp_path / SCRATCH_NAME).symlink_to(scratch)
    try:
        assert before.kill() == -signal.SIGKILL
        time.sleep(0.1)
        assert after.poll() is None
        assert scratch.exists()
    finally:
        after.kill()
    assert not scratch.exists()


def test_run_directory_is_cleared_although_somebody_looks_at_its_lock(tmp_path):
    trainer = start_trainer(tmp_path, 1, command=SLEEPER)
    (tmp_path / SCRATCH_NAME).symlink_to(tmp_path / "gone")
    trainer.process.kill()
    trainer.process.wait()
    lock = lock_run_dir(tmp_path)
    threading.Timer(0.2, os.close, [lock]).start()
    trainer.kill()
    assert not (tmp_path / SCRATCH_NAME).is_symlink()
