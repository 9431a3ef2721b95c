"""Starts a process that sends one run to a destination (python -m workers.mirrors), and asks it with a time limit.

The process gets no secret but its own, and no address of the database. If it does not answer in time it is killed.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings

from hacrl_web.runs.worker.trainer_environment import trainer_environment

ANSWER_S = 60.0
END_S = 5.0  # for a killed process to be gone
MAX_ANSWER = 2**20
LOG_BYTES = 2**20  # after which a mirror's log is begun anew; the one before is kept
_living: set[MirrorProcess] = set()


class MirrorFailed(Exception):
    """Why a mirror could not send, in a sentence."""


class MirrorSilent(MirrorFailed):
    """The destination did not answer in time."""


class MirrorProcess:
    """Use it in one thread only."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = trainer_environment() | {"HOME": str(folder), "PYTHONPATH": str(settings.BASE_DIR)}
        with _log(folder / "mirror.log") as log:
            self._child = subprocess.Popen(
                [settings.MIRRORS_PYTHON, "-m", "workers.mirrors"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=settings.BASE_DIR,
                env=environment, start_new_session=True,
            )  # fmt: skip
        assert self._child.stdin
        assert self._child.stdout
        self._input, self._output = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(self._input, False)
        self._rest = b""
        _living.add(self)

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request. Errors: MirrorFailed, MirrorSilent after ANSWER_S; then the process is gone."""
        deadline = time.monotonic() + ANSWER_S
        try:
            self._write(json.dumps(request).encode() + b"\n", deadline)
            answer = json.loads(self._line(deadline))
        except (OSError, ValueError) as error:
            self.end()
            raise MirrorFailed(f"The process that sends ended ({error or 'no answer'}).") from None
        except MirrorFailed:
            self.end()
            raise
        if not isinstance(answer, dict) or "error" in answer:
            self.end()
            raise MirrorFailed(str(answer["error"] if isinstance(answer, dict) else answer)[:400])
        return answer

    def _wait(self, place: int, event: int, deadline: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(place, event)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise MirrorSilent(f"The destination did not answer within {ANSWER_S:g} s.")

    def _write(self, data: bytes, deadline: float) -> None:
        while data:
            self._wait(self._input, selectors.EVENT_WRITE, deadline)
            data = data[os.write(self._input, data[:65536]) :]

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._rest:
            self._wait(self._output, selectors.EVENT_READ, deadline)
            piece = os.read(self._output, 65536)
            self._rest += piece
            if not piece or len(self._rest) > MAX_ANSWER:
                raise ValueError
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def kill(self) -> None:
        """It and what it started; from any thread."""
        if self._child.returncode is None:
            family: list[psutil.Process] = []
            with suppress(psutil.Error):  # a client's helper may have a session of its own
                family = psutil.Process(self._child.pid).children(recursive=True)
            with suppress(OSError):
                os.killpg(self._child.pid, signal.SIGKILL)
            for one in family:
                with suppress(psutil.Error):
                    one.kill()

    def end(self) -> None:
        """Kill it, if it still lives, and wait for it, END_S at most: a dead file system may hold it."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(END_S)
        _living.discard(self)
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _log(path: Path) -> BufferedWriter:
    """The log that all processes of a mirror append to."""
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return open(path, "ab")


def kill_all() -> None:
    """Kill every process of this kind; whoever waits for one gets MirrorFailed. For the end of the watcher."""
    for process in list(_living):
        process.kill()
