"""Slurm by its commands srun, squeue and scancel."""

from __future__ import annotations

import os
import subprocess

from workers.cluster.schedulers import SchedulerError, with_keys

TIMEOUT_S = 20


class Slurm:
    """options: words for srun, such as --partition=a100 and --gres=gpu:2."""

    def __init__(self, options: list[str]) -> None:
        self.options = options
        self._srun: subprocess.Popen[bytes] | None = None

    def start(self, name: str, command: list[str], keys: str) -> None:
        """srun waits for resources itself, and stays as long as the job; its messages go to the trainer's log."""
        words = ["srun", f"--job-name={name}", "--ntasks=1", "--export=ALL", *self.options, *command]
        try:
            self._srun = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=with_keys(os.environ, keys))
        except OSError as error:
            raise SchedulerError(f"srun cannot be started: {error}") from error

    def state(self, name: str) -> str:
        if self._srun is not None and self._srun.poll() is None:
            return "srun runs"
        return " ".join(_run("squeue", "--noheader", "--me", f"--name={name}", "--format=%T").split())

    def cancel(self, name: str) -> None:
        _run("scancel", "--me", f"--name={name}")

    def forget_keys(self, name: str) -> None:
        """They were in the environment of the job alone."""


def _run(*words: str) -> str:
    """The output of a command. Error: SchedulerError."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SchedulerError(f"{words[0]} does not answer: {error}") from error
    if done.returncode:
        raise SchedulerError(f"{words[0]} says: {done.stderr.strip()[:500] or f'status {done.returncode}'}")
    return done.stdout
