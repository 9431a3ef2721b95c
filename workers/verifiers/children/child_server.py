"""The inside of a verifier's child process: it stays clean and warm, and a fork of it answers the questions.

It reads `{"answer", "gold"}` lines on stdin and writes `{"right"}` lines on stdout until stdin ends. A fork that takes
too long is killed and the next question gets a new one, in milliseconds where loading an algebra system takes
seconds. No alarm is set: code that never returns to Python would not hear it.
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

IsRight = Callable[[str, str], bool | None]
_PR_SET_PDEATHSIG = 1


class Unscorable(Exception):
    """No verdict is possible; the text says why."""

    def __init__(self, reason: str, is_timeout: bool = False) -> None:
        super().__init__(reason)
        self.is_timeout = is_timeout


class Wrong(Exception):
    """The answer is wrong; the text says why."""


def serve_verifier(is_right: IsRight, memory_bytes: int, seconds: int, grace_s: float = 0.0) -> None:
    """Answer with is_right(gold, answer) until stdin ends; None is "I cannot tell", Unscorable and Wrong say more.

    grace_s: what an is_right that watches the clock itself gets on top, to tell what it saw.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which may still want its answer
    lower(resource.RLIMIT_AS, memory_bytes)
    lower(resource.RLIMIT_CORE, 0)
    _say({"ready": True})
    fork: _Fork | None = None
    for line in sys.stdin:
        fork = fork or _Fork(is_right, seconds)
        reply = fork.ask(line, seconds + grace_s)
        if reply is None:
            reply = {"right": None, "reason": f"no verdict in {seconds} s", "is_timeout": True}
        elif not reply:
            reply = {"right": None, "reason": "the verifier process died"}
        if fork.has_ended:
            fork = None
        _say(reply)


def write_refusal(reason: str) -> None:
    """Instead of serving: tell the parent why this kind of verifier cannot work here."""
    _say({"refused": reason})


class _Fork:
    """A copy of this process that answers, and dies with it."""

    def __init__(self, is_right: IsRight, seconds: int) -> None:
        ours, theirs = os.pipe()
        request_pipe, asking = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(ours)
            os.close(asking)
            try:
                _answer(is_right, request_pipe, theirs, seconds)
            finally:
                os._exit(0)
        os.close(theirs)
        os.close(request_pipe)
        self._replies, self._asking = ours, os.fdopen(asking, "w")
        self.has_ended = False

    def ask(self, line: str, limit_s: float) -> dict[str, Any] | None:
        """Its reply; {} where it died, None where it was killed after `limit_s`."""
        try:
            self._asking.write(line)
            self._asking.flush()
        except BrokenPipeError:
            self._end()
            return {}
        if not select.select([self._replies], [], [], limit_s)[0]:
            self._end()
            return None
        piece = os.read(self._replies, 65536)  # a reply is short and written at once
        if not piece:
            self._end()
            return {}
        reply: dict[str, Any] = json.loads(piece)
        return reply

    def _end(self) -> None:
        self.has_ended = True
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._replies)
        with suppress(BrokenPipeError):  # a line that never went out
            self._asking.close()


def _answer(is_right: IsRight, requests: int, replies: int, seconds: int) -> None:
    """The fork's whole life: until its parent closes the pipe, or dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    with os.fdopen(requests) as lines:
        for line in lines:
            # Should both parents die at once, the kernel ends an answer that never returns.
            used = resource.getrusage(resource.RUSAGE_SELF)
            lower_for_now(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + seconds + 2)
            os.write(replies, json.dumps(_reply(is_right, json.loads(line))).encode())


def _reply(is_right: IsRight, request: dict[str, str]) -> dict[str, Any]:
    try:
        right = is_right(request["gold"], request["answer"])
    except Wrong as verdict:
        return {"right": False, "reason": str(verdict)}
    except Unscorable as verdict:
        return {"right": None, "reason": str(verdict), "is_timeout": verdict.is_timeout}
    except (MemoryError, RecursionError) as error:
        return {"right": None, "reason": type(error).__name__}
    return {"right": right, "reason": "cannot tell"} if right is None else {"right": right}


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)
