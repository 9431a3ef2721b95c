"""Processes that are quick to start, and those that a test may not leave behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.forked import FORKING, Forked
from workers.agents import multi_process
from workers.contract import trainer_process
from workers.contract.spec.run import RunSpec
from workers.verifiers.children import line_process

GONE_S = 10.0
PROCESSES = multiprocessing.get_context("fork")  # to load the libraries takes longer than a test's training


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers and processes of agents are forked."""
    for module in (multi_process, trainer_process):
        monkeypatch.setattr(module, "subprocess", FORKING)


@pytest.fixture
def forked_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """So are the processes of local models."""
    monkeypatch.setattr(line_process, "subprocess", FORKING)


def run_trainer(spec: RunSpec, run_dir: Path) -> tuple[int, str]:
    """`python -m workers` in a process of its own, to its end: the exit status, and what it wrote to stderr."""
    path, errors = run_dir.parent / "given.json", run_dir.parent / "errors.txt"
    path.write_text(spec.to_json())
    from workers.trainer import rewards

    rewards.function_file.cache_clear()  # it may have changed
    rewards.judge_file.cache_clear()
    with errors.open("w") as file:
        process = Forked([sys.executable, "-m", "workers", str(path), str(run_dir)], stderr=file)
        try:
            return process.wait(120), errors.read_text()
        finally:
            process.kill()  # nothing, where it has ended
            process.wait()


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
