"""The lease of a trainer behind a prefix, by itself; whole runs: tests/web/runs/worker/test_prefix.py."""

from __future__ import annotations

import sys
import time

import pytest

from tests.support.waiting import wait_until
from workers.contract import trainer_process
from workers.contract.trainer_process import LEASE_S, Lease, LeaseWatch, lease_path, start_trainer

READ_KEYS = (
    "import os, sys; from pathlib import Path; from workers.contract.trainer_process import hold_run_dir, read_keys;"
    "hold_run_dir(Path(sys.argv[2]), int(sys.argv[4])); assert 'k3y' not in str(os.environ);"
    "print(os.read(0, 9), read_keys().get('helpful'), flush=True)"
)


def test_watch_counts_changes_by_its_own_clock_and_a_late_look_as_a_short_one(tmp_path):
    now, path = [0.0], lease_path(tmp_path, 1)
    watch = LeaseWatch(path, lambda: now[0])
    path.write_text("0")
    assert not watch.is_over()
    assert not watch.has_changed  # an old file may lie there
    for seconds, count, silent_s in ((1, "0", 1), (1, "0", 2), (500, "0", 4), (1, "1", 0), (1, "1", 1)):
        now[0] += seconds
        path.write_text(count)
        assert not watch.is_over()
        assert watch._silent_s == silent_s
    assert watch.has_changed
    for _ in range(15):  # 1 + 15 * 2 = 31 s
        now[0] += 2
        is_over = watch.is_over()
    assert is_over
    assert watch._silent_s == LEASE_S + 1


def test_lease_that_is_revoked_is_over_at_once_and_not_created_again(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer_process, "BEAT_S", 0.02)
    old = lease_path(tmp_path, 1)
    old.write_text("9")
    beats = []
    one = Lease(lease_path(tmp_path, 2), lambda: beats.append(1))
    assert not old.exists()
    watch = LeaseWatch(lease_path(tmp_path, 2))
    assert wait_until(lambda: not watch.is_over() and watch.has_changed)
    lease_path(tmp_path, 2).unlink()
    num_beats = len(beats)
    assert wait_until(lambda: len(beats) > num_beats + 2)
    assert watch.is_over()
    one.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keys", [{"helpful": "k3y"}, None])
def test_keys_reach_a_trainer_behind_a_prefix_by_standard_input_alone(tmp_path, keys):
    trainer = start_trainer(tmp_path, 1, command=[sys.executable, "-c", READ_KEYS], prefix=["nice"], keys=keys)
    try:
        assert wait_until(lambda: trainer.poll() is not None)
        assert (tmp_path / "trainer.log").read_text().strip() == f"b'' {keys and keys['helpful']}"
    finally:
        trainer.kill()


def test_trainer_that_still_holds_the_lock_after_its_lease_is_awaited(tmp_path, monkeypatch):
    monkeypatch.setattr("workers.contract.trainer_process.LEASE_S", 0.5)
    monkeypatch.setattr("workers.contract.trainer_process.MARGIN_S", 0.0)
    hold = (
        "import fcntl, subprocess, sys;"  # as on a node that nobody reaches: of another session, and without the mark
        "subprocess.Popen([sys.executable, '-c', 'import fcntl, time; f = open(\"lock\"); "
        "fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); time.sleep(8)'], env={}, start_new_session=True);"
        "import time; time.sleep(60)"
    )
    trainer = start_trainer(tmp_path, 1, command=[sys.executable, "-c", hold], prefix=["nice"])
    assert wait_until(lambda: "1" in (tmp_path / "trainer.log").read_text())
    begin = time.monotonic()
    trainer.kill()
    assert time.monotonic() - begin > 0.5
