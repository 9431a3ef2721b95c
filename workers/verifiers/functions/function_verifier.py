"""Rewards by a function of one's own, which runs in killable, fenced child processes.

A call that takes too long, or whose process dies, is tried once more in a new process: a busy machine must not end a
run. Any other failure, and the second one, is a `RewardFunctionError` that names the function, its version and the
question.
"""

from __future__ import annotations

import math
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from workers import heartbeat
from workers.contract.spec.reward_function import NETWORK_VARIABLE, FunctionFile, network_is_allowed
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.children.line_process import LineProcess, ProcessLost
from workers.verifiers.functions import function_process
from workers.verifiers.functions.function_process import MAX_PARTS
from workers.verifiers.python.bubblewrap import bubblewrap
from workers.verifiers.python.sandbox import child_environment
from workers.verifiers.scoring.verdicts import Verdict

TIME_LIMIT_S = 10.0
MEMORY_MIB = 1024
START_LIMIT_S = 60.0
TRIES = 2
MAX_REPLY_BYTES = 65_536
PROGRAM = ("-m", function_process.__name__)


class RewardFunctionError(VerifierError):
    """A reward function fails; its author has to fix it, so waiting does not help."""


@dataclass(frozen=True)
class Case:
    """What a reward function is called with. fields: further columns of the question."""

    question: str
    answer: str
    response: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, str]:
        return {**self.fields, "question": self.question, "answer": self.answer, "response": self.response}


class _CallLost(Exception):
    """The process was killed at the time limit, or died; the text says which."""


class _FunctionProcess:
    """One process of a function. Used by one thread at a time."""

    def __init__(self, file: FunctionFile, time_limit_s: float, memory_mib: int, hash_seed: int) -> None:
        self._file, self._time_limit_s, self._memory_mib = file, time_limit_s, memory_mib
        self._hash_seed = hash_seed
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lines = LineProcess(
            "-s", "-B", *PROGRAM,
            max_reply_bytes=MAX_REPLY_BYTES, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def ask(self, case: Case | None) -> dict[str, Any]:
        """{reward, reason, parts} or {failed}; without a case {ready} or {failed}.

        Errors: _CallLost, VerifierError (no sandbox here).
        """
        if self._lines.pid is None:
            self.start()
        late = f"did not return in {self._time_limit_s:g} s"
        return self._reply(lambda: self._lines.ask(case.to_json() if case else {}, self._time_limit_s), late)

    def start(self) -> None:
        """A new process that has loaded the file. Errors: _CallLost, RewardFunctionError, VerifierError."""
        has_network = self._file.uses_network
        if has_network and not network_is_allowed(os.environ):
            raise RewardFunctionError(
                "it asks for the network (NETWORK = True), which is allowed only where the operator sets "
                f"{NETWORK_VARIABLE}=1"
            )
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="hacrl-reward-", ignore_cleanup_errors=True)
        folder = self._folder.name
        outer = bubblewrap(folder, has_network=has_network)
        environment = child_environment(folder, str(self._hash_seed))
        first = {
            "source": self._file.text,
            "folder": folder,
            "memory_bytes": self._memory_mib * 2**20,
            "has_network": has_network,
            "is_inner": bool(outer),
        }
        late = f"its file did not load in {START_LIMIT_S:g} s"
        greeting = self._reply(lambda: self._lines.start(environment, START_LIMIT_S, first, outer), late)
        if "refused" in greeting:
            self.close()
            raise VerifierError(f"reward functions cannot run here: {greeting['refused']}")
        if "failed" in greeting:
            self.close()
            raise RewardFunctionError(f"its file does not load: {greeting['failed']}")

    def _reply(self, ask: Callable[[], dict[str, Any]], late: str) -> dict[str, Any]:
        """A reply, checked again: the file may write to its pipe, or change what writes it. Error: _CallLost."""
        problem = "wrote what is no reply"
        try:
            return read_reply(ask())
        except ProcessLost as lost:
            if not lost.is_broken:
                problem = late if lost.is_late else f"ended its process; it has {self._memory_mib} MiB of memory"
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        self.close()
        raise _CallLost(problem)

    def close(self) -> None:
        """Kill the process and delete its folder; the next call starts another."""
        self._lines.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


def read_reply(reply: dict[str, Any]) -> dict[str, Any]:
    """The parts of a reply. Errors: of other types and keys."""
    for key in ("ready", "refused", "failed"):
        if key in reply:
            return {key: storable(str(reply[key]))}
    parts = {storable(name): _finite(number) for name, number in reply["parts"].items()}
    reward = None if reply["reward"] is None else _finite(reply["reward"])
    if len(parts) > MAX_PARTS or not 0 <= (reward or 0.0) <= 1:
        raise ValueError
    return {"reward": reward, "reason": storable(reply["reason"]), "parts": parts}


def _finite(number: Any) -> float:
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError
    return float(number)


def storable(text: str) -> str:
    """Without what databases and streams refuse: NUL and half surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class FunctionVerifier(AbstractContextManager["FunctionVerifier"]):
    """Scores responses by a function, in up to `processes` processes, which start with the first call."""

    def __init__(
        self,
        file: FunctionFile,
        processes: int = 1,
        time_limit_s: float = TIME_LIMIT_S,
        memory_mib: int = MEMORY_MIB,
        hash_seed: int = 0,
    ) -> None:
        """hash_seed: of Python's hashes, which order sets of texts."""
        self.file = file
        self._children = [_FunctionProcess(file, time_limit_s, memory_mib, hash_seed) for _ in range(processes)]
        self._free: queue.SimpleQueue[_FunctionProcess] = queue.SimpleQueue()
        for child in self._children:
            self._free.put(child)
        self._pool = ThreadPoolExecutor(processes, thread_name_prefix="reward")
        self._has_failed = threading.Event()

    def __exit__(self, *_: object) -> None:
        self.close()

    def score_cases(self, cases: Sequence[Case]) -> list[Verdict]:
        """One verdict per case, in order. Errors: RewardFunctionError; VerifierError, if nothing can run here."""
        self._has_failed.clear()
        verdicts = []
        for verdict in self._pool.map(self._score, cases):
            heartbeat.send_heartbeat()
            verdicts.append(verdict)
        return verdicts

    def check_loads(self) -> None:
        """Errors: RewardFunctionError, if the file does not load, or if it compares the responses of a group, which it
        never sees together; VerifierError, if nothing can run here."""
        child = self._free.get()
        try:
            child.start()
            reply = child.ask(None)
            if "failed" in reply:
                raise RewardFunctionError(reply["failed"])
        except RewardFunctionError as error:
            raise self._error(str(error), None) from None
        except _CallLost as lost:
            raise self._error(str(lost), None) from None
        finally:
            self._free.put(child)

    def restart(self) -> None:
        """End the processes, so that the next call begins in a new one."""
        for child in self._children:
            child.close()

    def doubts(self, answers: Sequence[str]) -> list[str]:
        """A function may find any reference answer useful."""
        return [""] * len(answers)

    def forget_unscorable(self) -> None:
        """Nothing is cached."""

    def _score(self, case: Case) -> Verdict:
        if self._has_failed.is_set():  # the error of an earlier case ends the batch
            return Verdict(None, "not scored")
        child = self._free.get()
        try:
            reply = self._ask(child, case)
        except VerifierError:
            self._has_failed.set()
            raise
        finally:
            self._free.put(child)
        reward = reply["reward"]
        reason = reply["reason"] or ("unscorable: it returned None" if reward is None else f"reward {reward:g}")
        return Verdict(reward, reason, parts=reply["parts"])

    def _ask(self, child: _FunctionProcess, case: Case) -> dict[str, Any]:
        problem = ""
        for _ in range(TRIES):
            try:
                reply = child.ask(case)
            except _CallLost as lost:
                problem = f"{lost}, {TRIES} times"
                continue
            except RewardFunctionError as error:
                raise self._error(str(error), None) from None
            if "failed" not in reply:
                return reply
            problem = reply["failed"]
            break
        raise self._error(problem, case)

    def _error(self, problem: str, case: Case | None) -> RewardFunctionError:
        where = "" if case is None else f" (question {case.fields.get('id') or case.question[:80]!r})"
        name = f"the reward function {self.file.name!r}, version {self.file.version}, fails"
        return RewardFunctionError(f"{name}: {problem}{where}: fix it, then resume the run")

    def close(self) -> None:
        """End the processes; the verifier cannot be used afterwards."""
        self._pool.shutdown(cancel_futures=True)
        self.restart()
