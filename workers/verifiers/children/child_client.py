"""A verifier's child process, seen from its parent: started once, asked many times, killed and replaced when it hangs.

`workers.verifiers.children.child_server` is the child's side. Every kind of verifier that needs a process, and the
second verifier, use this class.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from workers.contract.repository import ROOT
from workers.verifiers.verdicts import CORRECT, DIED, INCORRECT, Verdict

TIME_LIMIT_S = 3.0
GRACE_S = 0.4  # the child keeps the time limit itself; after this time on top it is killed
START_LIMIT_S = 60.0
MEMORY_LIMIT_BYTES = 1536 * 2**20


class VerifierError(RuntimeError):
    """The verifier itself does not work; this is no verdict about an answer."""


class VerifierProcess:
    """One warm verifier process, `python -m module`, and its pipe. Used by one thread at a time."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._arguments = ["-m", module, str(MEMORY_LIMIT_BYTES), str(int(TIME_LIMIT_S)), *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def ask(self, answer: str, gold: str) -> Verdict:
        """The child's verdict; unscorable if it dies or takes too long. Error: VerifierError."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"answer": answer, "gold": gold}).encode() + b"\n")
            process.stdin.flush()
            reply = self._read(process, TIME_LIMIT_S + GRACE_S)
        except BrokenPipeError:
            reply = {}
        if reply is None or "is_correct" not in reply:
            self.close()
            return Verdict(None, f"unscorable: no verdict in {TIME_LIMIT_S:g} s", True) if reply is None else DIED
        if reply["is_correct"] is None:
            return Verdict(None, f"unscorable: {reply['reason']}", bool(reply.get("is_timeout")))
        if "reward" in reply and not reply["is_correct"]:
            return Verdict(float(reply["reward"]), reply["reason"])
        return CORRECT if reply["is_correct"] else Verdict(0.0, reply.get("reason", INCORRECT.reason))

    def _start(self) -> subprocess.Popen[bytes]:
        # The child's work is single-threaded; without this, numeric libraries reserve memory for each core.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, *self._arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment)
        self._process, self._buffer = process, b""
        greeting = self._read(process, START_LIMIT_S)
        if not greeting or "refused" in greeting:
            self.close()
            why = greeting["refused"] if greeting else "install the train extra (math-verify)."
            raise VerifierError(f"The verifier process did not start: {why}")
        return process

    def _read(self, process: subprocess.Popen[bytes], limit_s: float) -> dict[str, Any] | None:
        """The next line as an object; {} when the process has ended, None after `limit_s`."""
        assert process.stdout is not None
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    return {}
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        """Kill the process; the next question starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                with suppress(BrokenPipeError):  # of a line that was not sent
                    pipe.close()
