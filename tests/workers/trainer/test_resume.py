"""A run that was killed, the trainer's process and all, ends where the uninterrupted one does, bit for bit."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.marks import in_full
from tests.support.workers.endings import assert_same_end
from tests.support.workers.processes import PROCESSES
from tests.support.workers.tiny import make_pair, make_spec, records, train
from workers.agents.local import LocalAgent
from workers.contract.spec.run import RunSpec
from workers.trainer.checkpoints import newest_checkpoint


def train_until(spec_path: Path, run_dir: Path, attempt: int, dies: str) -> None:
    """In a process of its own. dies: "-", or the call of one agent before which it is killed: "update N", "save N"."""
    kind, _, number = dies.partition(" ")
    calls = {"save": 0, "update": 0}

    def dying(method, name):
        def call(*arguments, **more):
            calls[name] += 1
            if kind == name and calls[name] == int(number):
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments, **more)

        return call

    LocalAgent.save = dying(LocalAgent.save, "save")
    LocalAgent.update = dying(LocalAgent.update, "update")
    train(RunSpec.from_file(spec_path), run_dir, attempt)


def run(spec_path: Path, run_dir: Path, attempt: int, dies: str = "-") -> int:
    process = PROCESSES.Process(target=train_until, args=(spec_path, run_dir, attempt, dies))
    process.start()
    process.join(120)
    process.kill()  # nothing, where it has ended
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, Path]:
    """Six steps in one go; what each later test compares with."""
    root = tmp_path_factory.mktemp("whole")
    spec = make_spec(
        root,
        make_pair(root),
        algorithm={"beta": 0.01},
        training={"steps": 6, "lr_schedule": "cosine", "warmup_steps": 1},
        checkpoint={"save_steps": 3},
        telemetry={"alignment_interval": 2},
    )
    path = root / "spec.json"
    path.write_text(spec.to_json())
    assert RunSpec.from_file(path) == spec
    assert run(path, root / "run", 1) == 0
    return path, root / "run"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "saved"),
    [
        ("update 7", [3]),  # in step 4, before any agent's update
        ("save 4", [3]),  # at the end, between the two agents' saves
        *in_full(
            ("update 8", [3]),  # in step 4, between the two agents' updates
            ("save 2", []),  # between the two agents' saves of the first checkpoint
        ),
    ],
)
def test_killed_run_ends_as_the_uninterrupted_one(tmp_path, whole, dies, saved):
    spec, expected = whole
    run_dir = tmp_path / "run"
    assert run(spec, run_dir, 1, dies) == -signal.SIGKILL
    assert [record["step"] for record in records(run_dir, "checkpoint")] == saved
    found, problems = newest_checkpoint(run_dir)
    assert problems == []  # a half one is none
    assert (None if found is None else found.step) == (saved[-1] if saved else None)
    assert run(spec, run_dir, 2) == 0
    assert_same_end(run_dir, expected)
