"""The processes of `up`: each has its own session, restarts after it dies, and ends with `up`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0  # a process that ran this long restarts after the first pause again
LOG_LIMIT = 10 * 2**20
MAX_OLD_LOGS = 3
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def rotate(log: Path, limit: int = LOG_LIMIT) -> None:
    """web.log -> web.log.1 -> ... The file is copied and emptied, because its writer keeps it open for appending."""
    if not log.exists() or log.stat().st_size < limit:
        return
    for number in range(MAX_OLD_LOGS - 1, 0, -1):
        older = Path(f"{log}.{number}")
        if older.exists():
            older.replace(f"{log}.{number + 1}")
    with log.open("rb") as source, Path(f"{log}.1").open("wb") as target:
        while block := source.read(2**20):
            target.write(block)
    os.truncate(log, 0)


class ManagedProcess:
    """A process that is started again when it ends. During the pause before that, `process` is None."""

    def __init__(self, name: str, command: list[str], log: Path, environment: dict[str, str], root: Path) -> None:
        self.name, self.command, self.log = name, command, log
        self.grace_s = 10.0
        self.environment, self.root = environment, root
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = 0
        self.pause_s = FIRST_PAUSE_S
        self.next_start = 0.0
        self.started = 0.0
        self.created = 0.0  # with the pid, this identifies the process

    def start(self) -> None:
        rotate(self.log)
        with self.log.open("ab") as log:
            self.process = spawn(self.command, self.environment, self.root, log)
        self.started = time.monotonic()
        with contextlib.suppress(psutil.Error):
            self.created = started_at(psutil.Process(self.process.pid))

    def reap(self) -> int | None:
        """The exit status if the process has just ended; then schedules the next start."""
        if self.process is None or (status := self.process.poll()) is None:
            return None
        was_steady = time.monotonic() - self.started > STEADY_S
        kill_group(self.process.pid)
        self.process = None
        is_first_pause = was_steady or not self.restarts
        self.pause_s = FIRST_PAUSE_S if is_first_pause else min(2 * self.pause_s, LONGEST_PAUSE_S)
        self.restarts += 1
        self.next_start = time.monotonic() + self.pause_s
        return status

    def last_lines(self, count: int = 15) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
            return "\n".join(f"  {line}" for line in file.read().decode(errors="replace").splitlines()[-count:])


def spawn(
    command: list[str], environment: dict[str, str], root: Path, output: Any, errors: Any = subprocess.STDOUT
) -> subprocess.Popen[bytes]:
    """Start a process in its own session: a Ctrl-C at the terminal reaches only `up`, which ends it in order."""
    return subprocess.Popen(
        command,
        env=environment,
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
        # When `up` is killed, the kernel ends its processes too.
        preexec_fn=partial(_prctl, PR_SET_PDEATHSIG, signal.SIGTERM) if sys.platform == "linux" else None,
    )


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def terminate(process: subprocess.Popen[bytes]) -> None:
    """TERM once, to the leader only: Celery and uvicorn end their own children in order."""
    if process.poll() is None and process.pid not in _terminated:
        _terminated.add(process.pid)
        process.send_signal(signal.SIGTERM)


_terminated: set[int] = set()  # pids; a second TERM would make Celery drop its task


class ProcessSupervisor:
    """Starts, watches and ends the children; wakes up for signals."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.children: list[ManagedProcess] = []
        self.say = say
        self.stopping = False
        self.impatient = False  # after a second signal: do not wait
        self.on_change: Callable[[], None] = lambda: None
        self._wake, self._wake_end = socket.socketpair()
        for end in (self._wake, self._wake_end):
            end.setblocking(False)
        self._next_rotation = 0.0
        self.singles: list[subprocess.Popen[bytes]] = []
        if sys.platform == "linux":
            _prctl(PR_SET_CHILD_SUBREAPER, 1)  # trainers whose worker died become our children

    def handle_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_end.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop_signal)

    def _stop_signal(self, number: int, frame: object) -> None:
        self.impatient = self.stopping
        self.stopping = True

    def add(self, child: ManagedProcess) -> ManagedProcess:
        self.children.append(child)
        child.start()
        return child

    def wait(self, until: Callable[[], bool], timeout_s: float | None = None, pause_s: float = 1.0) -> bool:
        """Watch the children until the condition holds: True. False after the time-out or a stop signal."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not until():
            if self.stopping or (deadline is not None and time.monotonic() >= deadline):
                return False
            self._sleep(pause_s)
            self._tend()
        return True

    def _sleep(self, longest_s: float) -> None:
        """Sleep until a signal arrives, a restart is due, or the time is over."""
        due = [child.next_start - time.monotonic() for child in self.children if child.process is None]
        signals, _, _ = select.select([self._wake], [], [], max(0.0, min([longest_s, *due])))
        if signals:
            with contextlib.suppress(BlockingIOError):
                self._wake.recv(4096)
            self._reap_orphans()

    def _tend(self) -> None:
        changed = False
        for child in self.children:
            status = child.reap()
            if status is not None:
                changed = True
                cause = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
                pause = f"starting it again in {child.pause_s:g} s"
                self.say(f"{child.name} ended ({cause}); {pause}; its log: {child.log}")
            if child.process is None and not self.stopping and time.monotonic() >= child.next_start:
                changed = True
                child.start()
        if time.monotonic() >= self._next_rotation:
            self._next_rotation = time.monotonic() + 30
            for child in self.children:
                rotate(child.log)
        if changed:
            self.on_change()

    def _reap_orphans(self) -> None:
        """Reap dead processes that became our children; those with a Popen are reaped by it."""
        ours = {child.process.pid for child in self.children if child.process} | {one.pid for one in self.singles}
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if process.pid not in ours and process.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(process.pid, os.WNOHANG)

    def single(
        self, command: list[str], environment: dict[str, str], root: Path, output: Any, errors: Any = subprocess.STDOUT
    ) -> subprocess.Popen[bytes]:
        """A process that is not restarted, and ends with the others."""
        process = spawn(command, environment, root, output, errors)
        self.singles.append(process)
        return process

    def stop(self) -> None:
        """TERM all, Redis (the first) last; wait until they end or for a second Ctrl-C; KILL the rest."""
        self.stopping = True
        own = psutil.Process()
        descendants = own.children(recursive=True)  # trainers too, which have their own sessions
        running = [(child.process, child.grace_s) for child in self.children if child.process is not None]
        others = [*running[1:], *((process, 2.0) for process in self.singles)]
        for process, _ in others:
            terminate(process)
        for process, grace_s in [*others, *running[:1]]:
            self._end(process, grace_s)
        end_all([*descendants, *own.children(recursive=True)], grace_s=0)
        self._reap_orphans()

    def _end(self, process: subprocess.Popen[bytes], grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        terminate(process)
        while process.poll() is None and time.monotonic() < deadline and not self.impatient:
            self._sleep(min(0.5, deadline - time.monotonic()))
        kill_group(process.pid)
        process.wait()


def started_at(process: psutil.Process) -> float:
    """Start time of a process, in seconds: with the pid it identifies the process on this machine.

    On Linux it counts from the machine's start, because a start time in wall-clock time moves when the clock is set.
    """
    return process.create_time() - psutil.boot_time() if psutil.LINUX else process.create_time()


def is_alive(process: psutil.Process) -> bool:
    """False for zombies: they stay for ever if the first process does not reap, as in some containers."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def end_all(processes: list[psutil.Process], grace_s: float) -> None:
    """Wait until they end, KILL those that outlive the grace, and wait for those."""
    for patience_s in (grace_s, 5.0):
        deadline = time.monotonic() + patience_s
        while (alive := [process for process in processes if is_alive(process)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
