"""The process that writes to a destination (python -m workers.mirrors), asked with a time limit.

It gets no secret but its own, and no address of the database. If it does not answer in time it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil
from django.conf import settings

from hacrl_web.runs.worker.trainer_environment import trainer_environment

ANSWER_S = 60.0
SILENT_S = 10.0  # a failure after that long counts as no answer
END_S = 5.0  # for a killed process to be gone: a dead file system may hold it
MAX_ANSWER = 2**20
LOG_BYTES = 2**20  # after which a mirror's log is begun anew; the one before is kept


class MirrorFailed(Exception):
    """Why a mirror could not send, in a sentence. is_silence: the destination did not answer in time."""

    def __init__(self, sentence: str, is_silence: bool = False) -> None:
        self.is_silence = is_silence
        super().__init__(sentence[:400])


class MirrorProcess:
    """The process of one mirror. One thread asks it; any may kill it. Error: MirrorFailed if it cannot be started."""

    def __init__(self, folder: Path) -> None:
        environment = trainer_environment() | {"HOME": str(folder), "PYTHONPATH": str(settings.BASE_DIR)}
        self._pipe, theirs = socket.socketpair()
        try:
            with theirs, _log(folder) as log:
                self._child = subprocess.Popen(
                    [settings.MIRRORS_PYTHON, "-m", "workers.mirrors"],
                    stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=log, cwd=settings.BASE_DIR, env=environment,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:  # no disk, no memory, no such Python
            self._pipe.close()
            raise MirrorFailed(f"The process that sends cannot be started ({error.strerror}).") from None

    @property
    def is_alive(self) -> bool:
        return self._pipe.fileno() >= 0 and self._child.poll() is None

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request. Error: MirrorFailed; after ANSWER_S the process is ended too."""
        began_at, line = time.monotonic(), b""
        try:
            self._pipe.settimeout(ANSWER_S)
            self._pipe.sendall(json.dumps(request).encode() + b"\n")
            while not line.endswith(b"\n") and len(line) < MAX_ANSWER:
                self._pipe.settimeout(max(0.01, began_at + ANSWER_S - time.monotonic()))
                line += self._pipe.recv(65536) or b" no answer\n"
            answer: dict[str, Any] = json.loads(line)
            problem = str(answer.get("error", ""))
        except TimeoutError:
            self.end()
            problem = f"The destination did not answer within {ANSWER_S:g} s."
        except (OSError, ValueError):
            self.end()
            problem = "The process that sends ended: the end of mirror.log in its folder says why."
        if problem:
            raise MirrorFailed(problem, is_silence=time.monotonic() - began_at >= min(SILENT_S, ANSWER_S))
        return answer

    def kill(self) -> None:
        """Kill the process and what it started: a client's helper may have a session of its own."""
        if self._child.returncode is not None:
            return
        family: list[psutil.Process] = []
        with suppress(psutil.Error):
            family = psutil.Process(self._child.pid).children(recursive=True)
        with suppress(OSError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for one in family:
            with suppress(psutil.Error):
                one.kill()

    def end(self) -> None:
        """Kill it, if it still lives, and wait for it, END_S at most."""
        self.kill()
        self._pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(END_S)


def _log(folder: Path) -> IO[bytes]:
    """The log that all processes of a mirror append to, in its folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "mirror.log"
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return open(path, "ab")
