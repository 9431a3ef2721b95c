"""A verifier's child process, seen from its parent; `workers.verifiers.children.child_server` is the child's side."""

from __future__ import annotations

import os

from workers.verifiers.children.line_process import LineProcess, ProcessLost
from workers.verifiers.scoring.verdicts import CORRECT, DIED, INCORRECT, Verdict

TIME_LIMIT_S = 3.0
GRACE_S = 0.4  # the child keeps the time limit itself; after this time on top it is killed
START_LIMIT_S = 60.0
MEMORY_LIMIT_BYTES = 1536 * 2**20


class VerifierError(RuntimeError):
    """The verifier itself does not work; this is no verdict about an answer."""


class VerifierProcess:
    """One warm verifier process, `python -m module`. Used by one thread at a time."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._lines = LineProcess("-m", module, str(MEMORY_LIMIT_BYTES), str(int(TIME_LIMIT_S)), *arguments)

    @property
    def pid(self) -> int | None:
        """None before the first question, and after a loss."""
        return self._lines.pid

    def ask(self, answer: str, gold: str) -> Verdict:
        """The child's verdict; unscorable if it dies or takes too long. Error: VerifierError."""
        if self.pid is None:
            self._start()
        try:
            reply = self._lines.ask({"answer": answer, "gold": gold}, TIME_LIMIT_S + GRACE_S)
        except ProcessLost as lost:
            return Verdict(None, f"unscorable: no verdict in {TIME_LIMIT_S:g} s", True) if lost.is_late else DIED
        if reply["is_correct"] is None:
            return Verdict(None, f"unscorable: {reply['reason']}", bool(reply.get("is_timeout")))
        if "reward" in reply and not reply["is_correct"]:
            return Verdict(float(reply["reward"]), reply["reason"])
        return CORRECT if reply["is_correct"] else Verdict(0.0, reply.get("reason", INCORRECT.reason))

    def _start(self) -> None:
        # The child's work is single-threaded; without this, numeric libraries reserve memory for each core.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        try:
            greeting = self._lines.start(environment, START_LIMIT_S)
        except ProcessLost:
            greeting = {"refused": "install the train extra (math-verify)."}
        if "refused" in greeting:
            self.close()
            raise VerifierError(f"The verifier process did not start: {greeting['refused']}")

    def close(self) -> None:
        """Kill the process; the next question starts another."""
        self._lines.close()
