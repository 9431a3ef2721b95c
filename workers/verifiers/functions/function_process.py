"""The process that runs a reward function; `workers.verifiers.functions.function_verifier` starts it.

It reads `{source, folder, memory_bytes, has_network}` from the first line of stdin, enters the sandbox of responses'
code (workers.verifiers.python.sandbox), loads the source, and writes `{"ready"}`. Then it replies to each line of
keyword arguments with `{"result"}` or `{"failed"}`, until stdin ends. It lives for many calls, so that libraries are
loaded once; its parent keeps the time limit of each call and kills it.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.contract.spec.reward_function import ANSWER_NAMES, FUNCTION_NAME, called_function
from workers.verifiers.python.event_loop import use_pipes
from workers.verifiers.python.sandbox import SandboxUnavailable, confine, has_own_folder

FILE = "reward function"  # its name in tracebacks
MAX_PARTS = 16
MAX_REASON = 300  # characters


class BadResult(ValueError):
    """What the function returned is no reward."""


def checked_result(value: Any) -> dict[str, Any]:
    """{reward (None: unscorable), reason, parts} of what a function returned. Error: BadResult."""
    reason, parts = "", {}
    if isinstance(value, dict):
        if FUNCTION_NAME not in value:
            raise BadResult('it returned a dict without the key "reward"')
        others = {key: item for key, item in value.items() if key not in (FUNCTION_NAME, "reason")}
        if len(others) > MAX_PARTS:
            raise BadResult(f"it returned {len(others)} further numbers, {MAX_PARTS} at most")
        parts = {str(key)[:40]: _number(item, str(key)[:40]) for key, item in others.items()}
        reason, value = str(value.get("reason", ""))[:MAX_REASON], value[FUNCTION_NAME]
    if value is None:
        return {"reward": None, "reason": reason, "parts": parts}
    number = _number(value, "it")
    if not 0 <= number <= 1:
        raise BadResult(f"it returned {number:g}: a reward is a number from 0 to 1, or None for unscorable")
    return {"reward": number, "reason": reason, "parts": parts}


def _number(value: Any, what: str) -> float:
    """A finite number; bool, int, and the scalars of numeric libraries too."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)
    except Exception:
        raise BadResult(f"{what} returned {type(value).__name__}, not a number") from None
    if not math.isfinite(number):
        raise BadResult(f"{what} returned {number}: a reward is a number from 0 to 1, or None for unscorable")
    return number


def failure(error: BaseException) -> str:
    """The error, and its line in the file."""
    if isinstance(error, BadResult):
        return str(error)
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    line = places[-1].lineno if places else getattr(error, "lineno", None)
    where = f" in line {line}" if line else ""
    return f"{type(error).__name__}{where}: {str(error)[:MAX_REASON]}".removesuffix(": ")


def load_function(source: str) -> Callable[..., Any]:
    """The function of a source. Errors: any that its module level raises."""
    space: dict[str, Any] = {"__name__": "reward_function"}
    name, takes_lists, is_chat = called_function(source)
    execute = exec
    execute(compile(source, FILE, "exec"), space)
    function: Callable[..., Any] = space[name]
    return _with_lists(function, is_chat) if takes_lists else function


def _with_lists(function: Callable[..., Any], is_chat: bool) -> Callable[..., Any]:
    """A function of TRL's form, called with lists of one. is_chat: prompts and completions are lists of messages."""

    def message(role: str, text: str) -> Any:
        return [{"role": role, "content": text}] if is_chat else text

    def call(question: str, answer: str, response: str, **fields: str) -> Any:
        columns = {name: [value] for name, value in fields.items()} | {name: [answer] for name in ANSWER_NAMES}
        prompts, completions = [message("user", question)], [message("assistant", response)]
        value = function(prompts=prompts, completions=completions, **columns)
        return _only_awaited(value) if inspect.isawaitable(value) else _only(value)

    return call


async def _only_awaited(value: Any) -> Any:
    return _only(await value)


def _only(value: Any) -> Any:
    """The reward in a list of one. Error: BadResult."""
    if not isinstance(value, list | tuple):
        raise BadResult(f"it returned {type(value).__name__}: a function with completions returns a list of numbers")
    if len(value) != 1:
        raise BadResult(f"it returned {len(value)} rewards for one completion")
    return value[0]


async def _awaited(value: Any) -> Any:
    return await value


def main() -> None:
    """Serve one function until stdin ends."""
    requests, replies = os.fdopen(os.dup(0), "r", encoding="utf-8"), os.dup(1)
    for stream in (0, 1, 2):  # what the function prints is not a reply
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    first = json.loads(requests.readline())

    def reply(content: dict[str, Any]) -> None:
        os.write(replies, json.dumps(content).encode() + b"\n")

    folder = Path(first["folder"])
    sys.path.pop(0)  # the project's own folder
    use_pipes()
    has_quota = has_own_folder(folder, has_network=first["has_network"])
    os.chdir(folder)
    try:
        confine(folder, has_quota, first["memory_bytes"], cpu_seconds=None, has_network=first["has_network"])
    except (SandboxUnavailable, OSError, ValueError) as error:
        reply({"refused": str(error)})
        return
    try:
        function = load_function(first["source"])
    except BaseException as error:
        reply({"failed": failure(error)})
        return
    reply({"ready": True})
    for line in requests:
        try:
            value = function(**json.loads(line))
            if inspect.isawaitable(value):
                import asyncio  # after use_pipes, and slow

                value = asyncio.run(_awaited(value))
            content = checked_result(value)
        except BaseException as error:  # SystemExit and MemoryError too
            content = {"failed": failure(error)}
        reply(content)


if __name__ == "__main__":
    main()
    os._exit(0)  # does not wait for threads of the function
