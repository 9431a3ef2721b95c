"""Start, watch and stop a trainer process. Used by the supervisor and by the tests.

The trainer runs in its own session. It inherits two descriptors: the locked `lock` file of its run directory, so that
a run has one trainer at most, and the read end of a death pipe, so that it ends whenever its supervisor does. Behind a
prefix such as `srun`, perhaps on another machine, it inherits neither: it takes the lock itself, and ends with its
lease, a file in which the supervisor counts. Only changes count, never a date: the clocks of two machines differ.
A mark in the environment identifies processes that it starts in other sessions, as Ray does; they end with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from workers.contract.repository import ROOT
from workers.contract.trainer_log import LOG_NAME, OutputLimiter

DEATH_PIPE_VARIABLE = "HACRL_DEATH_PIPE"
KEYS_PIPE_VARIABLE = "HACRL_KEYS_PIPE"
MAX_KEYS_BYTES = 32_768  # fits in a pipe, so that writing does not wait for the trainer
BUSY_S = 2.0  # longer than others look at a run directory that has no trainer
KILL_S = 10.0
LEASE_S = 30.0  # a trainer lives so long without a sign of its supervisor: below the lease of a run
MARGIN_S = 10.0  # for a trainer to see its lease end, and to be killed
BEAT_S = 2.0
LOOK_S = 0.25
DISK_FULL_STATUS = 74  # exit status of a trainer that could not write its first or last events: it can resume
LEASE_OPTION = "--lease"  # of a trainer behind a prefix
MARK_VARIABLE = "HACRL_TRAINER_MARK"  # of a trainer and all processes that it starts
SPEC_NAME = "spec.json"
LOCK_NAME = "lock"
SCRATCH_NAME = "scratch"  # a link to a temporary folder, because sockets need short paths
HEARTBEAT_NAME = "pulse"  # its time changes while the trainer works (workers/heartbeat.py)
PAUSE_SIGNAL = signal.SIGUSR1  # finish the step, save a checkpoint, end
STACK_SIGNAL = signal.SIGUSR2  # write the stacks of all threads to stderr


class RunDirBusy(RuntimeError):
    """Another trainer uses this run directory."""


def lock_run_dir(run_dir: Path, patience_s: float = 0.0) -> int:
    """Take the run directory's lock and return its descriptor. Error: RunDirBusy."""
    descriptor = os.open(run_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                raise RunDirBusy(f"{run_dir} is in use by another trainer") from None
            time.sleep(0.02)
        else:
            return descriptor


def lease_path(run_dir: Path, attempt: int) -> Path:
    """The lease of a trainer behind a prefix: once the file is gone, the trainer ends, or never begins."""
    return run_dir / f"lease.{attempt}"


class Lease:
    """The supervisor's side: a thread counts up until `end`. on_beat: called after each count."""

    def __init__(self, path: Path, on_beat: Callable[[], None]) -> None:
        """Revoke the leases of other attempts and begin this one. Error: OSError."""
        self._path, self._on_beat = path, on_beat
        for earlier in path.parent.glob("lease.*"):
            earlier.unlink(missing_ok=True)
        path.write_text("0")
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        count = 0
        while not self._is_ended.wait(BEAT_S):
            count += 1
            # A file that another process has revoked is not created again; a folder may be away for a moment.
            with contextlib.suppress(OSError), open(self._path, "r+b", buffering=0) as file:
                file.write(b"%d" % count)
            self._on_beat()

    def end(self) -> None:
        """Have the trainer end at its next look."""
        self._is_ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


class LeaseWatch:
    """The trainer's side. A look that comes late, as after a machine slept, counts as a short one."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._now = path, clock
        self._count: bytes | None = None
        self._looked_at, self._silent_s = clock(), 0.0
        self.has_changed = False  # so a supervisor of this attempt lives

    def is_over(self) -> bool:
        """Look once more: whether the lease is revoked, or its count has not changed for LEASE_S."""
        now, count = self._now(), self._count
        try:
            count = self._path.read_bytes()
        except FileNotFoundError:
            return True
        except OSError:  # the folder is away for a moment
            pass
        is_same = count == self._count
        self.has_changed |= not is_same and self._count is not None
        self._silent_s = self._silent_s + min(now - self._looked_at, BEAT_S) if is_same else 0.0
        self._count, self._looked_at = count, now
        return self._silent_s > LEASE_S


class TrainerProcess:
    """A running trainer process. lease: of a trainer behind a prefix; `process` is then that of the prefix."""

    def __init__(
        self, process: subprocess.Popen[bytes], death_pipe: int, run_dir: Path, mark: str, lease: Lease | None
    ) -> None:
        self.process = process
        self._mark, self._run_dir = mark, run_dir
        self._death_pipe, self._lease = death_pipe, lease
        self._limiter = OutputLimiter(run_dir)

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self.process.poll()

    def request_stop(self) -> None:
        """Ask the trainer to end after its current phase (SIGTERM to the trainer itself)."""
        self._signal(signal.SIGTERM, group=False)

    def request_pause(self) -> None:
        """Ask the trainer to end after the current step, with a checkpoint. Only after its `started` event: without
        a handler the signal would end it.
        """
        self._signal(PAUSE_SIGNAL, group=False)

    def dump_stacks(self) -> None:
        """Have the trainer write the stacks of its threads to trainer.log, even if it hangs.

        Only for a trainer that will be killed: reading the stacks without Python's lock may crash a working one
        (python/cpython issue 116008).
        """
        self._signal(STACK_SIGNAL, group=False)

    def end(self, grace_s: float = 30.0) -> int:
        """TERM, wait `grace_s`, then KILL; nothing of the process group survives. Returns the exit status."""
        self.request_stop()
        deadline = time.monotonic() + grace_s
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.kill()

    def kill(self) -> int:
        """KILL the process group and all other processes that it started; returns the trainer's exit status.

        Of a trainer elsewhere the lease is revoked: its end is awaited for as long as it lives without one.
        """
        if self._lease:
            self._lease.end()
        self._signal(signal.SIGKILL, group=True)
        status = self.process.wait()
        kill_marked(self._mark)
        self._clear_run_dir()
        self._limiter.stop()
        if self._death_pipe >= 0:
            os.close(self._death_pipe)
            self._death_pipe = -1
        return status

    def _clear_run_dir(self) -> None:
        """Remove the scratch folder, unless it is that of the next attempt."""
        with contextlib.suppress(RunDirBusy, OSError):
            lock = lock_run_dir(self._run_dir, LEASE_S + MARGIN_S if self._lease else BUSY_S)
            try:
                remove_scratch(self._run_dir)
            finally:
                os.close(lock)

    def _signal(self, number: signal.Signals, *, group: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(self.pid, number)  # pgid = pid: it leads its own session
            elif self.poll() is None:
                os.kill(self.pid, number)


def start_trainer(
    run_dir: Path,
    attempt: int,
    *,
    command: list[str] | None = None,
    prefix: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    keys: Mapping[str, str] | None = None,
) -> TrainerProcess:
    """Start `python -m workers spec.json run_dir` for one attempt, with its output in trainer.log.

    Its working directory is the run directory: a hub id such as tests/web must not name a folder of this tree.
    `command` replaces `python -m workers` (the tests' fake trainer). `prefix`: words before it, such as `srun`; it
    passes on signals, standard input and output. `keys`: of the judges that the run names, by name; they go through a
    pipe, which is standard input behind a prefix. Errors: RunDirBusy; ValueError, if the keys are too long.
    """
    run_dir = run_dir.resolve()
    words = [*prefix, *(command or [sys.executable, "-m", "workers"])]
    words += [str(run_dir / SPEC_NAME), str(run_dir), "--attempt", str(attempt)]
    variables = dict(os.environ if environment is None else environment)
    variables[MARK_VARIABLE] = mark = mark_of(run_dir, attempt)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), variables.get("PYTHONPATH")]))
    lock = lock_run_dir(run_dir)
    try:
        kill_earlier_attempts(run_dir)
        read_end, write_end = os.pipe()
    except BaseException:  # such as too many open files: the run directory must not stay locked
        os.close(lock)
        raise
    inherited, keys_end, lease = [lock, read_end], -1, None
    try:
        if keys:
            keys_end = keys_pipe(keys)
        if prefix:
            words.append(LEASE_OPTION)
            lease = Lease(lease_path(run_dir, attempt), lambda: _beat_while_waiting(run_dir, attempt))
            inherited = []
        else:
            variables[DEATH_PIPE_VARIABLE] = str(read_end)
            if keys:
                inherited.append(keys_end)
                variables[KEYS_PIPE_VARIABLE] = str(keys_end)
        with open(run_dir / LOG_NAME, "ab") as log:
            process = subprocess.Popen(
                words,
                stdin=keys_end if prefix and keys else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=inherited,
                env=variables,
                cwd=run_dir,
            )
    except BaseException:
        if lease:
            lease.end()
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
        os.close(lock)  # the trainer has its own copy, which keeps the lock until it ends, or takes it itself
        if keys_end >= 0:
            os.close(keys_end)
    return TrainerProcess(process, write_end, run_dir, mark, lease)


def _beat_while_waiting(run_dir: Path, attempt: int) -> None:
    """Send heartbeats for a trainer that a prefix has not started yet: one that waits for its place is not hung."""
    if lease_path(run_dir, attempt).exists():
        with contextlib.suppress(RunDirBusy, OSError):  # it has begun
            os.close(lock_run_dir(run_dir))
            (run_dir / HEARTBEAT_NAME).touch(mode=0o600)


def keys_pipe(keys: Mapping[str, str]) -> int:
    """The read end of a pipe that holds the keys. Errors: ValueError, OSError."""
    text = json.dumps(dict(keys)).encode()
    if len(text) > MAX_KEYS_BYTES:
        raise ValueError(f"the keys of this run's judges have more than {MAX_KEYS_BYTES:,} bytes")
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, text)
    finally:
        os.close(write_end)
    return read_end


def read_keys() -> dict[str, str]:
    """Called by the trainer once: the keys of its judges by name; the pipe is empty and closed afterwards."""
    descriptor = os.environ.pop(KEYS_PIPE_VARIABLE, None)
    if descriptor is None:
        return {}
    with open(int(descriptor), "rb") as pipe:
        keys: dict[str, str] = json.loads(pipe.read(MAX_KEYS_BYTES) or b"{}")
    return keys


def remove_scratch(run_dir: Path) -> None:
    """Remove the trainer's folder outside its run directory, if there still is one."""
    link = run_dir / SCRATCH_NAME
    if link.is_symlink():
        shutil.rmtree(link.readlink(), ignore_errors=True)
        link.unlink(missing_ok=True)


def mark_of(run_dir: Path, attempt: int | None = None) -> str:
    """The beginning of the marks of a run's processes, in one attempt or in all."""
    run = hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:32]
    return f"{run}/" if attempt is None else f"{run}/{attempt}/"


def kill_earlier_attempts(run_dir: Path, patience_s: float = KILL_S) -> bool:
    """KILL what earlier attempts have left on this host; False if some of it lives on after `patience_s`.

    The caller holds the run directory's lock, so no attempt is under way. Where a trainer has ended and its supervisor
    was killed before it could look, nobody else would.
    """
    return kill_marked(mark_of(run_dir), patience_s)


def kill_marked(mark: str, patience_s: float = KILL_S) -> bool:
    """KILL every other process whose mark begins so, until none is left. Without /proc none is found."""
    deadline = time.monotonic() + patience_s
    while pids := _marked(mark):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _marked(mark: str) -> list[int]:
    """Ids of living processes whose mark begins so; zombies have no environment."""
    begin, pids = f"{MARK_VARIABLE}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        pid = int(path.parent.name)
        with contextlib.suppress(OSError):  # of another user, or already ended
            if pid != os.getpid() and any(entry.startswith(begin) for entry in path.read_bytes().split(b"\0")):
                pids.append(pid)
    return pids


def dump_stacks_on_signal() -> None:
    """Called by the trainer at its start: STACK_SIGNAL writes all stacks to stderr, from C, so even while it hangs."""
    faulthandler.register(STACK_SIGNAL, file=sys.stderr, all_threads=True)


def die_with_supervisor() -> None:
    """Called by the trainer at its start: when the supervisor's end of the pipe closes, it ends with its children."""
    descriptor = os.environ.pop(DEATH_PIPE_VARIABLE, None)
    if descriptor is None:
        return
    read_end = int(descriptor)
    os.set_inheritable(read_end, False)
    mark = os.environ.get(MARK_VARIABLE)

    def wait_for_end() -> None:
        os.read(read_end, 1)
        _end_all(mark)

    threading.Thread(target=wait_for_end, name="death-pipe", daemon=True).start()


def hold_run_dir(run_dir: Path, attempt: int) -> None:
    """Called in place of `die_with_supervisor` by a trainer behind a prefix: take the lock, and end with the lease.

    The keys of judges are on standard input, which its children do not get. Errors: OSError; RunDirBusy, if the
    supervisor of this attempt is gone or another trainer lives.
    """
    os.environ[KEYS_PIPE_VARIABLE] = str(os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    mark = os.environ.get(MARK_VARIABLE)
    watch = LeaseWatch(lease_path(run_dir, attempt))
    while not watch.has_changed:
        if watch.is_over():
            raise RunDirBusy(f"attempt {attempt} of {run_dir} is over: its supervisor is gone")
        time.sleep(LOOK_S)

    def wait_for_end() -> None:
        while not watch.is_over():
            time.sleep(LOOK_S)
        print("the trainer's lease is over: its supervisor is gone or has ended it", file=sys.stderr, flush=True)
        _end_all(mark)

    threading.Thread(target=wait_for_end, name="lease", daemon=True).start()
    lock_run_dir(run_dir, LEASE_S + MARGIN_S)


def _end_all(mark: str | None) -> None:
    """KILL this process, its group and all that it started."""
    if mark:
        kill_marked(mark)
    os.killpg(os.getpgrp(), signal.SIGKILL)
