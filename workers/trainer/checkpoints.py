"""Checkpoints: all agents or none, verified by a manifest that is written last; safetensors and JSON only.

checkpoints/step-000040/agents/<index>-<slug>/   each an ordinary Hugging Face model folder
checkpoints/step-000040/state/                   what only resuming needs: optimizers, capability history, counters
checkpoints/step-000040/manifest.json            {step, agents: [{name, folder}], files: {path: {size, sha256}}}
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from workers import heartbeat
from workers.agents.interface import AgentInterface, Placement
from workers.contract.checkpoint_manifest import (
    FOLDER_NAME,
    MANIFEST_NAME,
    DamagedCheckpoint,
    read_manifest,
    sha256,
    step_folder,
    step_folders,
)
from workers.contract.spec.checkpoint import CheckpointSpec

if TYPE_CHECKING:  # it imports torch, which saved checkpoints are read without
    from workers.trainer.progress import LogFunction

MAX_FAILED_SAVES = 3
Save = Callable[[], None]
Score = tuple[int, float]  # step, and mean accuracy of its evaluation


@dataclass(frozen=True)
class SavedCheckpoint:
    """A complete checkpoint on disk."""

    step: int
    path: Path
    size_bytes: int


@dataclass(frozen=True)
class Resumable:
    """A verified checkpoint to resume from: model folders and state stems by agent, the trainer's own state."""

    step: int
    path: Path
    folders: dict[str, Path]
    state_stems: dict[str, Path]
    trainer: dict[str, Any]


def folder_slug(name: str) -> str:
    """The agent's name as part of a folder name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "agent"


def save_checkpoint(
    run_dir: Path,
    step: int,
    agents: Sequence[AgentInterface],
    trainer: dict[str, Any],
    keep: int,
    best_step: int | None = None,
    begin: Callable[[Sequence[Save]], Sequence[Save]] = lambda saves: saves,
) -> SavedCheckpoint:
    """Write a checkpoint and its manifest, rename it into place, then remove the oldest beyond `keep`.

    The checkpoint of `best_step` stays. Those of later steps are removed: they did not verify, so this attempt resumed
    from before them. begin: the placement's, which may save agents at the same time.

    A crash at any moment leaves the earlier checkpoints and no partial one. Error: OSError (disk full).
    """
    final = step_folder(run_dir, step)
    root = final.parent
    building = root / f".building-{final.name}"
    for leftover in root.glob(".building-*"):
        shutil.rmtree(leftover)
    (building / "state").mkdir(parents=True)
    names = [f"{index}-{folder_slug(agent.name)}" for index, agent in enumerate(agents)]
    entries = [{"name": agent.name, "folder": f"agents/{name}"} for agent, name in zip(agents, names, strict=True)]
    try:
        for save in begin([partial(_save_agent, *pair, building) for pair in zip(agents, names, strict=True)]):
            heartbeat.send_heartbeat()
            save()
        (building / "state" / "trainer.json").write_text(json.dumps(trainer))
        files: dict[str, dict[str, Any]] = {}
        for path in (path for path in sorted(building.rglob("*")) if path.is_file()):
            heartbeat.send_heartbeat()
            _sync(path)
            files[path.relative_to(building).as_posix()] = {"size": path.stat().st_size, "sha256": sha256(path)}
        manifest = building / MANIFEST_NAME
        manifest.write_text(json.dumps({"step": step, "agents": entries, "files": files}, indent=1))
        _sync(manifest)
        for folder in [*(path for path in building.rglob("*") if path.is_dir()), building]:
            _sync(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    if final.exists():  # it did not verify
        shutil.rmtree(final)
    building.rename(final)
    _sync(root)
    folders = step_folders(root)
    place = folders.index(final)
    removed = folders[: max(0, place - (keep - 1))] + folders[place + 1 :]
    for path in removed:
        if best_step is None or path != step_folder(run_dir, best_step):
            shutil.rmtree(path, ignore_errors=True)  # a file that is open on NFS is removed the next time
    return SavedCheckpoint(step, final, sum(int(entry["size"]) for entry in files.values()))


def _save_agent(agent: AgentInterface, name: str, building: Path) -> None:
    agent.save(building / "agents" / name)
    agent.save_state(building / "state" / name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newest_checkpoint(run_dir: Path) -> tuple[Resumable | None, list[str]]:
    """The newest checkpoint that verifies, and the problems of the newer ones."""
    problems: list[str] = []
    for path in reversed(step_folders(run_dir / FOLDER_NAME)):
        try:
            return load_checkpoint(path), problems
        except (DamagedCheckpoint, OSError) as error:
            problems.append(str(error))
    return None, problems


def load_checkpoint(path: Path) -> Resumable:
    """Verify one checkpoint folder, every byte. Error: DamagedCheckpoint."""
    manifest = read_manifest(path)
    manifest.check_bytes()
    try:
        trainer = json.loads((path / "state" / "trainer.json").read_bytes())
    except (ValueError, FileNotFoundError) as error:
        raise DamagedCheckpoint(f"{path.name}: state/trainer.json is missing or damaged") from error
    folders = {name: path / folder for name, folder in manifest.folders.items()}
    stems = {name: path / "state" / folder.name for name, folder in folders.items()}
    return Resumable(manifest.step, path, folders, stems, trainer)


class CheckpointsFail(RuntimeError):
    """Three checkpoints in a row could not be written."""


class CheckpointWriter:
    """Writes a run's checkpoints. step: the newest checkpoint's.  best: the highest score with a checkpoint."""

    def __init__(self, run_dir: Path, options: CheckpointSpec, log: LogFunction) -> None:
        self.run_dir, self.options, self.log = run_dir, options, log
        self.step: int | None = None
        self.best: Score | None = None
        self.failures = 0  # in a row

    def save(
        self, step: int, score: Score | None, placement: Placement, state: dict[str, Any]
    ) -> SavedCheckpoint | None:
        """A checkpoint of all agents at the end of a step; None if it could not be written.

        Then the earlier ones remain and training continues. Error: CheckpointsFail, after three in a row.
        """
        before = self.best
        self.note_best(step, score)
        best_step = self.best[0] if self.best and self.options.keep_best else None
        state |= {"best": self.best}
        try:
            saved = save_checkpoint(
                self.run_dir, step, placement.agents, state, self.options.keep, best_step, placement.begin
            )
        except (OSError, SafetensorError) as error:
            self.failures, self.best = self.failures + 1, before
            problem = f"checkpoint of step {step} not written, the earlier ones are kept: {error} (is the disk full?)"
            self.log("warning", problem, "disk")
            if self.failures >= MAX_FAILED_SAVES:
                raise CheckpointsFail(f"disk: {self.failures} checkpoints in a row not written: {error}") from error
            return None
        self.step, self.failures = step, 0
        return saved

    def note_best(self, step: int, score: Score | None) -> None:
        """Remember the score of this step if it is the highest with a checkpoint.

        NaN, if no answer of an agent could be scored, is ignored: no score would be higher.
        """
        if score and score[0] == step and not math.isnan(score[1]) and (not self.best or score[1] > self.best[1]):
            self.best = score

    def resume(self, step: int, state: dict[str, Any]) -> None:
        """Resume from a checkpoint with this trainer's state."""
        self.step = step
        best = state.get("best")
        # A run that resumes another's does not have the other's best checkpoint.
        self.best = tuple(best) if best and step_folder(self.run_dir, best[0]).is_dir() else None
