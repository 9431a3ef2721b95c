"""A child process that answers lines of JSON, seen from its parent: asked many times, killed when it hangs, replaced.

Verifiers, reward functions and judges of a local folder differ in what they start and say. A process of one answer is
`workers.verifiers.python.python_tests`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from workers.contract.repository import ROOT

MAX_REPLY_BYTES = 16 * 2**20
WAIT_S = 1.0


class ProcessLost(Exception):
    """The process was killed, or ended. is_late: at its time limit.  is_broken: it wrote what is no reply."""

    def __init__(self, *, is_late: bool = False, is_broken: bool = False) -> None:
        self.is_late, self.is_broken = is_late, is_broken


class LineProcess:
    """One such process. Used by one thread at a time."""

    def __init__(
        self,
        *arguments: str,
        on_wait: Callable[[], None] = lambda: None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        **options: Any,
    ) -> None:
        """arguments: of Python.  on_wait: is called at least once a second while it waits.  options: of Popen."""
        self._arguments, self._on_wait, self._max_bytes, self._options = arguments, on_wait, max_reply_bytes, options
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return self._process.pid if self._process else None

    def start(
        self, environment: Mapping[str, str], limit_s: float, first: object = None, within: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Its first line, after `first` was sent. within: how a command that runs it begins. Error: ProcessLost."""
        self.close()
        self._buffer = b""
        options: dict[str, Any] = {"cwd": ROOT, "env": environment, **self._options}
        command = [*within, sys.executable, *self._arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        return self._read(limit_s) if first is None else self.ask(first, limit_s)

    def ask(self, request: object, limit_s: float) -> dict[str, Any]:
        """Its next line; the process is running. Error: ProcessLost, and the process is gone."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # reading tells how it ended
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return self._read(limit_s)

    def _read(self, limit_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline, output = time.monotonic() + limit_s, self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._lost(is_late=True)
            self._on_wait()
            if not select.select([output], [], [], min(WAIT_S, left_s))[0]:
                continue
            piece = os.read(output, 65536)
            self._buffer += piece
            if not piece or len(self._buffer) > self._max_bytes:
                raise self._lost(is_broken=bool(piece))
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            raise self._lost(is_broken=True)
        return reply

    def _lost(self, *, is_late: bool = False, is_broken: bool = False) -> ProcessLost:
        self.close()
        return ProcessLost(is_late=is_late, is_broken=is_broken)

    def close(self) -> None:
        """Kill the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                with suppress(BrokenPipeError):  # of a line that was not sent
                    pipe.close()
