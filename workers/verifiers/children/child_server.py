"""A verifier's child process: it loads the libraries once and answers in a fork, which can be killed.

It reads `{"answer", "gold"}` lines from stdin and writes `{"is_correct"}` lines to stdout until stdin ends; partial
credit comes with a `reward`. A fork that takes too long is killed, and the next question gets a new one, in
milliseconds; loading an algebra system again takes seconds. An alarm would not do: code that never returns to Python
does not receive it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from workers.verifiers.children.resource_limits import lower, lower_for_now

# (gold, answer) -> whether it is correct, or its partial credit, alone or with the reason; None: it cannot tell.
IsCorrect = Callable[[str, str], "bool | float | tuple[float, str] | None"]
_PR_SET_PDEATHSIG = 1


class Unscorable(Exception):
    """No verdict is possible; the text says why."""

    def __init__(self, reason: str, is_timeout: bool = False) -> None:
        super().__init__(reason)
        self.is_timeout = is_timeout


class Incorrect(Exception):
    """The answer is incorrect; the text says why."""


def serve_verifier(
    is_correct: IsCorrect, memory_bytes: int, seconds: int, grace_s: float = 0.0, *, forks_each: bool = False
) -> None:
    """Reply with is_correct(gold, answer) until stdin ends. It returns None or raises Unscorable if it cannot tell;
    a number from 0 to 1, also with a reason, is partial credit.

    grace_s: time on top for an is_correct that keeps the time limit itself and reports it.
    forks_each: every answer has a fork of its own, which an is_correct may restrict for good.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which may still wait for a reply
    lower(resource.RLIMIT_AS, memory_bytes)
    lower(resource.RLIMIT_CORE, 0)
    _print({"ready": True})
    fork: _Fork | None = None
    for line in sys.stdin:
        fork = fork or _Fork(is_correct, seconds)
        reply = fork.ask(line, seconds + grace_s)
        if reply is None:
            reply = {"is_correct": None, "reason": f"no verdict in {seconds} s", "is_timeout": True}
        elif not reply:
            reply = {"is_correct": None, "reason": "the verifier process died"}
        if forks_each and not fork.has_ended:
            fork.end()
        if fork.has_ended:
            fork = None
        _print(reply)


def write_refusal(reason: str) -> None:
    """Instead of serving: tell the parent why this kind of verifier cannot work here."""
    _print({"refused": reason})


class _Fork:
    """A copy of this process that answers, and dies with it."""

    def __init__(self, is_correct: IsCorrect, seconds: int) -> None:
        self._replies, their_replies = os.pipe()
        their_requests, requests = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._replies)
            os.close(requests)
            try:
                _answer(is_correct, their_requests, their_replies, seconds)
            finally:
                os._exit(0)
        os.close(their_replies)
        os.close(their_requests)
        self._requests = os.fdopen(requests, "w")
        self.has_ended = False

    def ask(self, line: str, limit_s: float) -> dict[str, Any] | None:
        """Its reply; {} if it died, None if it was killed after `limit_s`."""
        reply: dict[str, Any] | None = {}
        with suppress(BrokenPipeError):
            self._requests.write(line)
            self._requests.flush()
            if not select.select([self._replies], [], [], limit_s)[0]:
                reply = None
            elif piece := os.read(self._replies, 65536):  # a reply is short and written at once
                reply = json.loads(piece)
        if not reply:
            self.end()
        return reply

    def end(self) -> None:
        """Kill it."""
        self.has_ended = True
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._replies)
        with suppress(BrokenPipeError):  # of a line that was not sent
            self._requests.close()


def _answer(is_correct: IsCorrect, requests: int, replies: int, seconds: int) -> None:
    """The work of a fork, until its parent closes the pipe or dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    with os.fdopen(requests) as lines:
        for line in lines:
            # If both parents die at once, the kernel ends an answer that never returns.
            usage = resource.getrusage(resource.RUSAGE_SELF)
            lower_for_now(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + seconds + 2)
            os.write(replies, json.dumps(_reply(is_correct, json.loads(line))).encode())


def _reply(is_correct: IsCorrect, request: dict[str, str]) -> dict[str, Any]:
    try:
        result = is_correct(request["gold"], request["answer"])
    except Incorrect as verdict:
        return {"is_correct": False, "reason": str(verdict)}
    except Unscorable as verdict:
        return {"is_correct": None, "reason": str(verdict), "is_timeout": verdict.is_timeout}
    except (MemoryError, RecursionError) as error:
        return {"is_correct": None, "reason": type(error).__name__}
    if result is None:
        return {"is_correct": None, "reason": "cannot tell"}
    if isinstance(result, bool):
        return {"is_correct": result}
    reward, reason = result if isinstance(result, tuple) else (result, f"{result:.3f} of 1")
    return {"is_correct": reward >= 1, "reward": reward, "reason": reason}


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)
