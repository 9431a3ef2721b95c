"""A run that was killed, the trainer's process and all, ends where the uninterrupted one does, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.workers.tiny import make_pair, make_spec, records
from workers.checkpoint import newest_checkpoint
from workers.spec import RunSpec

ROOT = Path(__file__).resolve().parents[2]
# argv: spec, run directory, attempt, and where to die: "-", "step N" or "save N" (of one agent).
SCRIPT = """
import os, signal, sys
from pathlib import Path
from tests.workers.tiny import train
from workers.placement import LocalAgent
from workers.spec import RunSpec

spec, run_dir, attempt, (kind, _, number) = *map(Path, sys.argv[1:3]), int(sys.argv[3]), sys.argv[4].partition(" ")
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
train(RunSpec.from_file(spec), run_dir, attempt)
"""


def run(spec_path: Path, run_dir: Path, attempt: int, dies: str = "-") -> int:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(spec_path), str(run_dir), str(attempt), dies],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def told(run_dir: Path, kind: str) -> list[dict]:
    """The events of a run as a reader keeps them: of a step that was made twice, the last telling."""
    kept: dict[tuple, dict] = {}
    for record in records(run_dir, kind):
        names = ("step", "agent", "source", "prompt_id", "sample", "benchmark")
        body = {key: value for key, value in record.items() if key not in ("seq", "attempt", "time", "crc")}
        kept[tuple(str(record.get(name)) for name in names)] = body
    return [kept[key] for key in sorted(kept)]


def assert_same_end(left: Path, right: Path) -> None:
    found = [newest_checkpoint(run_dir)[0] for run_dir in (left, right)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].step == found[1].step
    names = [
        {path.relative_to(each.path).as_posix() for path in each.path.rglob("*.safetensors")} for each in found if each
    ]
    assert names[0] == names[1]
    assert len(names[0]) == 4  # two agents' weights and optimizers
    for name in names[0]:
        ours, theirs = (load_file(each.path / name) for each in found if each)
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert ours[key].equal(theirs[key]), (name, key)
    for kind in ("metrics", "rollout", "contribution", "evaluation"):
        assert told(left, kind) == told(right, kind), kind


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
        ("update 8", [3]),  # in step 4, between the two agents' updates
        ("save 4", [3]),  # at the end, between the two agents' saves
        ("save 2", []),  # between the two agents' saves of the first checkpoint
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
