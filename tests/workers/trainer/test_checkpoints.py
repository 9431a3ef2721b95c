"""Checkpoints: whole or not at all, verified byte by byte, newest first, and loadable without our code."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from tests.support.workers.tiny import HashVerifier, make_pair, make_spec, records, train
from workers.contract.spec.checkpoint import CheckpointSpec
from workers.trainer.checkpoints import (
    CheckpointWriter,
    DamagedCheckpoint,
    folder_slug,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from workers.verifiers.scoring.verdicts import Verdict


class FakeAgent:
    """Writes one small file; `fails` breaks in the middle of a save."""

    def __init__(self, name: str, *, fails: bool = False) -> None:
        self.name, self.fails = name, fails

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights of " + self.name.encode())
        if self.fails:
            raise OSError(28, "No space left on device")

    def save_state(self, stem: Path) -> None:
        stem.with_suffix(".json").write_text("{}")


def save(run_dir: Path, step: int, *agents: FakeAgent, keep: int = 2):
    return save_checkpoint(run_dir, step, agents or [FakeAgent("A")], {"step": step}, keep)  # type: ignore[arg-type]


def test_manifest_names_every_file_with_size_and_digest(tmp_path):
    saved = save(tmp_path, 40, FakeAgent("Qwen3 4B/Instruct"), FakeAgent("模型"))
    assert saved.path == tmp_path / "checkpoints" / "step-000040"
    manifest = json.loads((saved.path / "manifest.json").read_text())
    assert manifest["step"] == 40
    assert [entry["folder"] for entry in manifest["agents"]] == ["agents/0-qwen3-4b-instruct", "agents/1-agent"]
    on_disk = {path.relative_to(saved.path).as_posix() for path in saved.path.rglob("*") if path.is_file()}
    assert manifest["files"].keys() == on_disk - {"manifest.json"}
    assert saved.size_bytes == sum((saved.path / name).stat().st_size for name in manifest["files"])


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest", "no manifest"])
def test_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, damage):
    save(tmp_path, 1)
    path = save(tmp_path, 2).path
    file = path / "agents" / "0-a" / "model.safetensors"
    if damage == "flip":
        file.write_bytes(b"W" + file.read_bytes()[1:])
    elif damage == "truncate":
        os.truncate(file, 3)
    elif damage == "remove":
        file.unlink()
    elif damage == "manifest":
        (path / "manifest.json").write_text('{"step": 2')
    else:
        (path / "manifest.json").unlink()
    found, problems = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 1
    named = "manifest.json" if "manifest" in damage else "agents/0-a/model.safetensors"
    assert len(problems) == 1
    assert problems[0].startswith("step-000002: ")
    assert named in problems[0]
    with pytest.raises(DamagedCheckpoint):
        load_checkpoint(path)


def test_failed_save_leaves_the_earlier_checkpoint_and_no_half_one(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 2, FakeAgent("A"), FakeAgent("B", fails=True))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


def test_leftovers_of_a_killed_save_are_removed_by_the_next(tmp_path):
    (tmp_path / "checkpoints" / ".building-step-000007" / "agents").mkdir(parents=True)
    assert newest_checkpoint(tmp_path) == (None, [])
    save(tmp_path, 8)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000008"]


@pytest.mark.parametrize(("keep", "left"), [(1, [4]), (2, [3, 4]), (9, [1, 2, 3, 4])])
def test_only_the_newest_are_kept(tmp_path, keep, left):
    for step in range(1, 5):
        save(tmp_path, step, keep=keep)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == [f"step-{step:06d}" for step in left]


def test_best_checkpoint_outlives_the_newest(tmp_path):
    for step in range(1, 6):
        save_checkpoint(tmp_path, step, [FakeAgent("A")], {}, 2, best_step=min(step, 2))  # type: ignore[list-item]
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-000002", "step-000004", "step-000005"]


@pytest.mark.parametrize(("keep_best", "left"), [(True, [2, 4, 5, 6]), (False, [5, 6])])
def test_run_keeps_its_best_checkpoint_over_a_resume(tmp_path, keep_best, left):
    # Both agents' accuracy by step: the best of those with a checkpoint is step 2 until step 4 does better.
    accuracy = {0: 0.9, 1: 0.1, 2: 0.5, 3: 0.5, 4: 0.6, 5: 0.2, 6: 0.6}
    options = {"save_steps": 1, "keep": 2, "keep_best": keep_best}
    pair = make_pair(tmp_path)
    spec = make_spec(
        tmp_path,
        pair,
        checkpoint=options,
        training={"steps": 3, "lr_schedule": "constant"},
        evaluation={"eval_interval": 1},
    )

    class Graded(HashVerifier):
        def score(self, completions, answers):
            if len(completions) > 8:  # a step's rollouts: 32
                return super().score(completions, answers)
            right = round(accuracy[self.step] * len(completions))
            self.asked += 1
            self.step += self.asked % 2 == 0
            return [Verdict(float(index < right), "graded") for index in range(len(completions))]

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step, self.asked = step, 0

    run_dir = tmp_path / "run"
    train(spec, run_dir, verifier=Graded(0))
    longer = spec.model_copy(update={"training": spec.training.model_copy(update={"steps": 6})})
    trainer = train(longer, run_dir, attempt=2, verifier=Graded(3))
    kept = sorted(int(path.name[-6:]) for path in (run_dir / "checkpoints").iterdir())
    assert kept == [step for step in left if step != 2]  # step 4 was better than step 2
    assert trainer.checkpoints.best is not None
    assert trainer.checkpoints.best[0] == 4


def test_old_checkpoint_that_cannot_be_removed_makes_no_new_one_fail(tmp_path, monkeypatch):
    def busy(path, **_):
        raise OSError(39, "Directory not empty", path)  # as on NFS, while somebody reads a file in it

    save(tmp_path, 1, keep=1)
    monkeypatch.setattr(os, "rmdir", busy)
    assert save(tmp_path, 2, keep=1).step == newest_checkpoint(tmp_path)[0].step == 2
    monkeypatch.undo()
    save(tmp_path, 3, keep=1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000003"]


def test_evaluation_of_which_nothing_could_be_scored_is_never_the_best(tmp_path):
    saving = CheckpointWriter(tmp_path, CheckpointSpec(), lambda *told: None)
    for score in ((1, math.nan), (2, 0.3), (3, math.nan), (4, 0.2)):
        saving.note_best(score[0], score)
    assert saving.best == (2, 0.3)


def test_damaged_checkpoint_of_a_later_step_takes_no_sound_ones_place(tmp_path):
    for step in (10, 20, 30):
        save(tmp_path, step)
    os.truncate(tmp_path / "checkpoints" / "step-000030" / "agents" / "0-a" / "model.safetensors", 3)
    assert newest_checkpoint(tmp_path)[0].step == 20  # the run goes on from there
    save(tmp_path, 25)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-000020", "step-000025"]
    assert newest_checkpoint(tmp_path)[1] == []


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (999_999, 1_000_000):
        save(tmp_path, step)
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 1_000_000


def test_slug_is_safe_in_a_path():
    assert folder_slug("../../etc passwd") == "etc-passwd"
    assert folder_slug("x" * 80) == "x" * 40


def test_damaged_checkpoint_of_a_run_is_logged_and_not_used(tmp_path):
    spec = make_spec(tmp_path, make_pair(tmp_path), checkpoint={"save_steps": 1}, training={"steps": 2})
    run_dir = tmp_path / "run"
    train(spec, run_dir)
    weights = next((run_dir / "checkpoints" / "step-000002" / "agents").glob("0-*/model.safetensors"))
    os.truncate(weights, 100)
    train(spec, run_dir, attempt=2)
    assert records(run_dir, "started")[-1]["step"] == 1
    told = [record["message"] for record in records(run_dir, "log") if record["attempt"] == 2]
    assert any("model.safetensors does not match its manifest" in message for message in told)
    found, problems = newest_checkpoint(run_dir)
    assert found is not None
    assert (found.step, problems) == (2, [])
