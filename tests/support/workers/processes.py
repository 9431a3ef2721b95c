"""Processes that are quick to start, and those that a test may not leave behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from tests.support.forked import FORKING
from workers.agents import multi_process
from workers.contract import trainer_process
from workers.contract.spec.run import RunSpec

GONE_S = 10.0
# Each process is forked from one that has the libraries loaded: loading them takes longer than a test's training.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.support.workers.tiny"])


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers and processes of agents are forked."""
    for module in (multi_process, trainer_process):
        monkeypatch.setattr(module, "subprocess", FORKING)


def run_trainer(spec: RunSpec, run_dir: Path) -> tuple[int, str]:
    """`python -m workers` in a process of its own, to its end: the exit status, and what it wrote to stderr."""
    path, errors = run_dir.parent / "given.json", run_dir.parent / "errors.txt"
    path.write_text(spec.to_json())
    process = PROCESSES.Process(target=_trainer, args=([str(path), str(run_dir)], dict(os.environ), errors))
    process.start()
    process.join(120)
    process.kill()  # nothing, where it has ended
    process.join()
    assert process.exitcode is not None
    return process.exitcode, errors.read_text()


def _trainer(arguments: list[str], environment: Mapping[str, str], errors: Path) -> None:
    os.environ.update(environment)
    with errors.open("w") as file:
        os.dup2(file.fileno(), 2)
    from workers.__main__ import main

    sys.exit(main(arguments))


def child_pids() -> set[int]:
    """Of this process and their children, to any depth."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


def remaining(before: set[int]) -> dict[int, str]:
    """Command lines by pid of children that were not there before, run, and do not end within GONE_S."""
    deadline = time.monotonic() + GONE_S
    while (new := _running(child_pids() - before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return new


def _running(pids: set[int]) -> dict[int, str]:
    lines = {}
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                lines[pid] = " ".join(process.cmdline())
    return lines
