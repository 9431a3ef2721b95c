"""When a run's checkpoints fail, and which one was the best: the trainer's side of checkpoint.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from workers.agents.interface import Placement
from workers.contract.checkpoint_manifest import step_folder
from workers.contract.events import Incident, Level
from workers.contract.spec.sections import CheckpointSpec
from workers.trainer.checkpoint import SavedCheckpoint, save_checkpoint

MAX_FAILED_SAVES = 3
Score = tuple[int, float]  # step, and mean accuracy of its evaluation


class CheckpointsFail(RuntimeError):
    """Three checkpoints in a row could not be written."""


class Saving:
    """What is known of a run's checkpoints. step: of the newest.  best: of those with a checkpoint."""

    def __init__(self, run_dir: Path, options: CheckpointSpec, log: Callable[[Level, str, Incident], None]) -> None:
        self.run_dir, self.options, self.log = run_dir, options, log
        self.step: int | None = None
        self.best: Score | None = None
        self.failures = 0  # in a row

    def save(
        self, step: int, score: Score | None, placement: Placement, state: dict[str, Any]
    ) -> SavedCheckpoint | None:
        """A checkpoint of all agents at the end of a step, or None. Error: CheckpointsFail, after three in a row.

        One that cannot be written leaves the earlier ones as they were, and training goes on.
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
            kept = "the earlier ones are kept"
            self.log("warning", f"checkpoint of step {step} not written, {kept}: {error} (is the disk full?)", "disk")
            if self.failures >= MAX_FAILED_SAVES:
                raise CheckpointsFail(f"disk: {self.failures} checkpoints in a row not written: {error}") from error
            return None
        self.step, self.failures = step, 0
        return saved

    def note_best(self, step: int, score: Score | None) -> None:
        """Remember the evaluation of this step, where none with a checkpoint was better.

        NaN, where no answer of an agent could be scored, is no evaluation: nothing would ever be better.
        """
        if score and score[0] == step and not math.isnan(score[1]) and (not self.best or score[1] > self.best[1]):
            self.best = score

    def resume(self, step: int, state: dict[str, Any]) -> None:
        """Go on from a checkpoint with this trainer's state."""
        self.step = step
        best = state.get("best")
        # That of the run which this one goes on from stays there.
        self.best = tuple(best) if best and step_folder(self.run_dir, best[0]).is_dir() else None
