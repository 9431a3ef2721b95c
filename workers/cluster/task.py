"""The task is what a job runs on its node: the trainer, ended with its launcher, and its exit status for it.

It ends the trainer as soon as another attempt has the run, and after TASK_LEASE_S without a sign of its launcher. So a
node that the scheduler has lost, or a launcher that was killed with its host, leaves no trainer behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from workers.cluster.control import BEAT_S, ENDED, LOOK_S, NODE, ChangeTimer
from workers.cluster.schedulers import KEYS_VARIABLE
from workers.contract.cluster.job import CONTROL, TASK_LEASE_S, read_note, write_note
from workers.contract.repository import ROOT
from workers.contract.trainer_log import LOG_NAME
from workers.contract.trainer_process import (
    DEATH_PIPE_VARIABLE,
    KEYS_PIPE_VARIABLE,
    MARK_VARIABLE,
    SPEC_NAME,
    keys_pipe,
    kill_marked,
)

LOCK_NAME = "task.lock"
LOCK_S = 45.0  # longer than the task of an earlier attempt lives without its launcher
NOT_STARTED = 2


class Task:
    """One attempt on this node."""

    def __init__(self, run_dir: Path, attempt: int, program: list[str]) -> None:
        self.run_dir, self.attempt, self.program = run_dir.resolve(), attempt, program
        self._mark = secrets.token_hex(16)
        self._launcher = ChangeTimer()
        self._num_sent = self._beat = 0
        self._next_beat = 0.0
        self.was_terminated = False  # by the scheduler: its time limit, or a node that is drained

    def run(self) -> int:
        """The trainer's exit status, which ended.json has too."""
        signal.signal(signal.SIGTERM, self._note_term)
        with contextlib.ExitStack() as stack:
            if (lock := self._lock()) is None:
                print("task: this attempt is over, or another trainer lives", file=sys.stderr, flush=True)
                return NOT_STARTED
            stack.callback(os.close, lock)
            trainer = self._start(stack)
            try:
                self._follow(trainer)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(trainer.pid, signal.SIGKILL)
                status = trainer.wait()
                kill_marked(self._mark)
            write_note(self.run_dir / ENDED, attempt=self.attempt, status=status)
        return status

    def _note_term(self, *_: object) -> None:
        self.was_terminated = True

    def _lock(self) -> int | None:
        """The lock of the run among nodes; None if it is not free in time, or another attempt has the run."""
        descriptor = os.open(self.run_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_S
        while time.monotonic() < deadline and not self._is_replaced():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except OSError:
                time.sleep(LOOK_S)
        os.close(descriptor)
        return None

    def _is_replaced(self) -> bool:
        return read_note(self.run_dir / CONTROL).get("attempt", self.attempt) != self.attempt

    def _start(self, stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        read_end, write_end = os.pipe()  # the trainer ends with this process
        stack.callback(os.close, write_end)
        inherited = [read_end]
        variables = {**os.environ, MARK_VARIABLE: self._mark, DEATH_PIPE_VARIABLE: str(read_end)}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), variables.get("PYTHONPATH")]))
        if keys := variables.pop(KEYS_VARIABLE, ""):
            inherited.append(keys_pipe(json.loads(keys)))
            variables[KEYS_PIPE_VARIABLE] = str(inherited[-1])
        arguments = [str(self.run_dir / SPEC_NAME), str(self.run_dir), "--attempt", str(self.attempt)]
        try:
            with open(self.run_dir / LOG_NAME, "ab") as log:
                return subprocess.Popen(
                    [*self.program, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=inherited,
                    env=variables,
                    cwd=self.run_dir,
                )
        finally:
            for descriptor in inherited:
                os.close(descriptor)

    def _follow(self, trainer: subprocess.Popen[bytes]) -> None:
        """Until the trainer has ended, or must end at once."""
        while trainer.poll() is None:
            control = read_note(self.run_dir / CONTROL)
            if control.get("attempt", self.attempt) != self.attempt:
                return
            if self._launcher.seconds_unchanged(control.get("beat")) > TASK_LEASE_S:
                print("task: the launcher is silent; the trainer is ended", file=sys.stderr, flush=True)
                return
            self._send(trainer, control.get("signals") or [])
            self._show_life()
            time.sleep(LOOK_S)

    def _send(self, trainer: subprocess.Popen[bytes], names: list[str]) -> None:
        if self.was_terminated:
            self.was_terminated = False
            trainer.send_signal(signal.SIGTERM)
        for name in names[self._num_sent :]:
            trainer.send_signal(signal.Signals[name])
        self._num_sent = max(self._num_sent, len(names))

    def _show_life(self) -> None:
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + BEAT_S
            self._beat += 1
            with contextlib.suppress(OSError):  # the folder is away for a moment: the launcher waits longer than this
                write_note(self.run_dir / NODE, attempt=self.attempt, host=socket.gethostname(), beat=self._beat)
