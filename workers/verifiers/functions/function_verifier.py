"""Rewards by a function of one's own, which runs in killable, fenced child processes.

A call that takes too long, or whose process dies, is tried once more in a new process: a busy machine must not end a
run. Any other failure, and the second one, is a `RewardFunctionError` that names the function, its version and the
question.
"""

from __future__ import annotations

import json
import math
import os
import queue
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from workers import heartbeat
from workers.contract.repository import ROOT
from workers.contract.spec.reward_function import NETWORK_VARIABLE, FunctionFile, network_is_allowed
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.functions.function_process import MAX_PARTS
from workers.verifiers.verdicts import Verdict

TIME_LIMIT_S = 10.0
MEMORY_MIB = 1024
START_LIMIT_S = 60.0
TRIES = 2
MAX_REPLY_BYTES = 65_536


class RewardFunctionError(VerifierError):
    """A reward function fails; its author has to fix it, so waiting does not help."""


@dataclass(frozen=True)
class Case:
    """What a reward function is called with. fields: further columns of the question."""

    question: str
    answer: str
    response: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        arguments = {**self.fields, "question": self.question, "answer": self.answer, "response": self.response}
        return json.dumps(arguments)


class _ProcessLost(Exception):
    """The process was killed at the time limit, or died; the text says which."""


class _FunctionProcess:
    """One process of a function. Used by one thread at a time."""

    def __init__(self, file: FunctionFile, time_limit_s: float, memory_mib: int, hash_seed: int) -> None:
        self._file, self._time_limit_s, self._memory_mib = file, time_limit_s, memory_mib
        self._hash_seed = hash_seed
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._buffer = b""

    def ask(self, case: Case) -> dict[str, Any]:
        """{reward, reason, parts} or {failed}. Errors: _ProcessLost, VerifierError (no sandbox here)."""
        process = self._process or self.start()
        self._send(process, case.to_json())
        return self._read(process, self._time_limit_s, f"did not return in {self._time_limit_s:g} s")

    def start(self) -> subprocess.Popen[bytes]:
        """A new process that has loaded the file. Errors: _ProcessLost, RewardFunctionError, VerifierError."""
        has_network = self._file.uses_network
        if has_network and not network_is_allowed(os.environ):
            raise RewardFunctionError(
                "it asks for the network (NETWORK = True), which is allowed only where the operator sets "
                f"{NETWORK_VARIABLE}=1"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="hacrl-reward-", ignore_cleanup_errors=True)
        folder = self._folder.name
        environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": folder,
            "TMPDIR": folder,
            "PYTHONHASHSEED": str(self._hash_seed),  # the same reward every time
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._process = process = subprocess.Popen(
            [sys.executable, "-s", "-B", "-m", "workers.verifiers.functions.function_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        self._buffer = b""
        first = {
            "source": self._file.text,
            "folder": folder,
            "memory_bytes": self._memory_mib * 2**20,
            "has_network": has_network,
        }
        self._send(process, json.dumps(first))
        greeting = self._read(process, START_LIMIT_S, f"its file did not load in {START_LIMIT_S:g} s")
        if "refused" in greeting:
            self.close()
            raise VerifierError(f"reward functions cannot run here: {greeting['refused']}")
        if "failed" in greeting:
            self.close()
            raise RewardFunctionError(f"its file does not load: {greeting['failed']}")
        return process

    def _send(self, process: subprocess.Popen[bytes], line: str) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # reading tells how it ended
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()

    def _read(self, process: subprocess.Popen[bytes], limit_s: float, late: str) -> dict[str, Any]:
        """The next line as an object. Error: _ProcessLost."""
        assert process.stdout is not None
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.close()
                    raise _ProcessLost(late)
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    self.close()
                    raise _ProcessLost(f"ended its process; it has {self._memory_mib} MiB of memory")
                self._buffer += piece
                if len(self._buffer) > MAX_REPLY_BYTES:
                    self._refuse_reply()
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return read_reply(line)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._refuse_reply()

    def _refuse_reply(self) -> NoReturn:
        """The file has written to the pipe of the replies, or changed what writes them. Error: _ProcessLost."""
        self.close()
        raise _ProcessLost("wrote what is no reply")

    def close(self) -> None:
        """Kill the process and delete its folder; the next call starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                with suppress(BrokenPipeError):
                    pipe.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


def read_reply(line: bytes) -> dict[str, Any]:
    """A reply, checked again: the file runs in the process that writes it. Errors: of other types and keys."""
    reply = json.loads(line)
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
        """Errors: RewardFunctionError, if the file does not load; VerifierError, if nothing can run here."""
        child = self._free.get()
        try:
            child.start()
        except RewardFunctionError as error:
            raise self._error(str(error), None) from None
        except _ProcessLost as lost:
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
            except _ProcessLost as lost:
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
