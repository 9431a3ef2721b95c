"""The launcher stands in for the trainer on the worker's host: it holds the run directory's lock, ends with its
supervisor, passes signals on, and ends as the trainer does. The trainer itself is a job elsewhere (task.py).

Two trainers of a run never live at once: before a job is started, those of earlier attempts are cancelled and have
ended, or have heard nothing of their launcher for longer than a task lives without it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from workers.cluster.control import BEAT_S, ENDED, LOOK_S, NODE, NODE_LEASE_S, ChangeTimer
from workers.cluster.schedulers import Scheduler, SchedulerError
from workers.contract.cluster.job import CONTROL, JOB_NAME, MARGIN_S, TASK_LEASE_S, read_note, write_note
from workers.contract.trainer_process import (
    DEATH_PIPE_VARIABLE,
    HEARTBEAT_NAME,
    PAUSE_SIGNAL,
    STACK_SIGNAL,
    read_keys,
)

STATE_EVERY_S = 5.0
GONE_LOOKS = 3  # so often the scheduler must know of no job, and no status come, until it counts as lost


def job_name(run_dir: Path) -> str:
    """The run's id, in the letters that schedulers allow."""
    return f"hacrl-{run_dir.name.lower()}"[:52]


def launcher_log(text: str) -> None:
    """Into trainer.log, which is this process's output."""
    print(f"launcher: {text}", file=sys.stderr, flush=True)


class Launcher:
    """One attempt. describe: what job.json stores, so that `cancel` finds the scheduler again."""

    def __init__(self, scheduler: Scheduler, run_dir: Path, attempt: int, describe: dict[str, object]) -> None:
        self.scheduler, self.run_dir, self.attempt, self.describe = scheduler, run_dir, attempt, describe
        self.name = job_name(run_dir)
        self.signals: list[str] = []
        self._beat, self._next_beat, self._next_state = 0, 0.0, 0.0
        self._num_gone = 0
        self._node = ChangeTimer()
        pipe = os.environ.pop(DEATH_PIPE_VARIABLE, "")
        self._pipe = int(pipe) if pipe else None

    def run(self, command: list[str]) -> int:
        """The trainer's exit status; it ends by the same signal. command: that starts task.py for this attempt."""
        for number in (signal.SIGTERM, PAUSE_SIGNAL, STACK_SIGNAL):
            signal.signal(number, lambda received, _: self.signals.append(signal.Signals(received).name))
        keys = read_keys()
        end_jobs(self.scheduler, self.run_dir, self._keep_alive)
        if self._stops_before_start():
            return 0
        for name in (ENDED, NODE):
            (self.run_dir / name).unlink(missing_ok=True)
        write_note(self.run_dir / JOB_NAME, **self.describe)
        self._write_control()
        try:
            self.scheduler.start(self.name, command, json.dumps(keys) if keys else "")
        except SchedulerError as error:
            launcher_log(f"the job was not started: {error}")
            return 1
        launcher_log(f"job {self.name} is submitted")
        return self._follow()

    def _follow(self) -> int:
        while True:
            self._keep_alive()
            if (ended := read_note(self.run_dir / ENDED)).get("attempt") == self.attempt:
                with suppress(SchedulerError):  # job.json stays as long as the keys do
                    self.scheduler.forget_keys(self.name)
                    (self.run_dir / JOB_NAME).unlink(missing_ok=True)
                return int(ended["status"])
            node = read_note(self.run_dir / NODE)
            has_begun = node.get("attempt") == self.attempt
            if not has_begun:
                if self._stops_before_start():
                    self._end_job()
                    return 0
                (self.run_dir / HEARTBEAT_NAME).touch(mode=0o600)  # a job that waits is not hung
            elif self._node.seconds_unchanged(node) > NODE_LEASE_S:
                launcher_log(
                    f"nothing was heard from node {node.get('host')} for {NODE_LEASE_S:.0f} s: its job is cancelled"
                )
                self._end_job()
                return 1
            if self._is_gone():
                where = f" on node {node['host']}" if has_begun else " before it began"
                launcher_log(
                    f"job {self.name} has ended{where} without a status: killed, out of time or memory, or a lost node"
                )
                self._end_job()
                return 1
            time.sleep(LOOK_S)

    def _keep_alive(self) -> None:
        """What is due at every moment: end with the supervisor, and tell the task that we live."""
        if self._pipe is not None and select.select([self._pipe], [], [], 0)[0]:
            cancel_quietly(self.scheduler, self.name)
            os.killpg(os.getpgrp(), signal.SIGKILL)
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + BEAT_S
            self._write_control()

    def _write_control(self) -> None:
        self._beat += 1
        values = {"attempt": self.attempt, "beat": self._beat, "signals": list(self.signals)}
        try:
            write_note(self.run_dir / CONTROL, **values)
        except OSError as error:
            launcher_log(f"{CONTROL} cannot be written: {error}")

    def _stops_before_start(self) -> bool:
        return any(name != STACK_SIGNAL.name for name in self.signals)

    def _is_gone(self) -> bool:
        """Whether the scheduler has said several times that there is no job."""
        now = time.monotonic()
        if now >= self._next_state:
            self._next_state = now + STATE_EVERY_S
            try:
                self._num_gone = 0 if self.scheduler.state(self.name) else self._num_gone + 1
            except SchedulerError as error:  # of the job this says nothing
                launcher_log(str(error))
        return self._num_gone >= GONE_LOOKS

    def _end_job(self) -> None:
        cancel_quietly(self.scheduler, self.name)


def cancel_quietly(scheduler: Scheduler, name: str) -> bool:
    """False if the scheduler does not answer; the log says so."""
    try:
        scheduler.cancel(name)
    except SchedulerError as error:
        launcher_log(str(error))
        return False
    return True


def end_jobs(scheduler: Scheduler, run_dir: Path, keep_alive: Callable[[], None], most_s: float | None = None) -> bool:
    """Cancel what is left of earlier attempts and wait until it has ended.

    If the scheduler does not say so, what counts is that a task without its launcher ends its trainer. With `most_s`:
    False if that was too short, or the scheduler has not taken the request: it may keep a job that waits, and keys.
    """
    if not (run_dir / JOB_NAME).exists():
        return True
    begin = time.monotonic()
    limit_s = TASK_LEASE_S + MARGIN_S if most_s is None else most_s
    attempt = read_note(run_dir / NODE).get("attempt")
    is_cancelled = cancel_quietly(scheduler, job_name(run_dir))
    if most_s is not None and not is_cancelled:
        return False
    while True:
        try:
            if not scheduler.state(job_name(run_dir)):
                break
        except SchedulerError as error:
            launcher_log(str(error))
        if attempt is not None and read_note(run_dir / ENDED).get("attempt") == attempt:
            break
        if time.monotonic() - begin > limit_s:
            if most_s is not None:
                return False
            break
        keep_alive()
        time.sleep(LOOK_S)
    (run_dir / JOB_NAME).unlink(missing_ok=True)
    return True
