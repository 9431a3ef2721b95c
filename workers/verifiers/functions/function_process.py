"""The process that runs a reward function; `workers.verifiers.functions.function_verifier` starts it.

It reads `{source, folder, memory_bytes, has_network, is_inner}` from the first line of stdin, enters the sandbox of
responses' code (workers.verifiers.python.sandbox; is_inner: Bubblewrap is around it), loads the source, and writes
`{"ready"}`. Then it replies to each line of keyword arguments with `{"result"}` or `{"failed"}`, until stdin ends. An
empty object asks whether the function compares the responses of a group. It lives for many calls, so that libraries are
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

from workers.contract.spec.reward_function import ANSWER_NAMES, FUNCTION_NAME, SCORE, called_function
from workers.verifiers.python.event_loop import use_pipes
from workers.verifiers.python.sandbox import SandboxUnavailable, confine, has_own_folder

FILE = "reward function"  # its name in tracebacks
MAX_PARTS = 16
# Responses of different lengths, right and wrong, in no order: a function that ranks or counts them shows it.
PROBES = ("The answer is \\boxed{4}.", "5", "", "I think that it is four, so \\boxed{4}. Or not?", "4")
COMPARES = (
    "it rewards a response otherwise among others than by itself, which is not supported: each response is rewarded "
    "alone, without the others of its group"
)
MAX_REASON = 300  # characters


class BadResult(ValueError):
    """What the function returned is no reward."""


def checked_result(value: Any) -> dict[str, Any]:
    """{reward (None: unscorable), reason, parts} of what a function returned. Error: BadResult."""
    reason, parts = "", {}
    if isinstance(value, dict):
        name = FUNCTION_NAME if FUNCTION_NAME in value else SCORE
        if name not in value:
            raise BadResult(f'it returned a dict without the key "{FUNCTION_NAME}" or "{SCORE}"')
        others = {key: item for key, item in value.items() if key not in (name, "reason")}
        if name == SCORE:  # verl's have texts beside it
            others = {key: item for key, item in others.items() if isinstance(item, int | float)}
        if len(others) > MAX_PARTS:
            raise BadResult(f"it returned {len(others)} further numbers, {MAX_PARTS} at most")
        parts = {str(key)[:40]: _number(item, str(key)[:40]) for key, item in others.items()}
        reason, value = str(value.get("reason", ""))[:MAX_REASON], value[name]
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
    """The error, and its line in the file; a library that the sandbox does not let load is named as the cause."""
    if isinstance(error, BadResult):
        return str(error)
    modules = [Path(one.filename).parts for one in traceback.extract_tb(error.__traceback__) if one.name == "<module>"]
    libraries = [parts[parts.index("site-packages") + 1] for parts in modules if "site-packages" in parts]
    if libraries and not isinstance(error, ModuleNotFoundError):
        text = f"{libraries[0]} is not available to reward functions, which have no devices and little memory"
        return f"{text} ({type(error).__name__}: {str(error)[:MAX_REASON]})"
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    line = places[-1].lineno if places else getattr(error, "lineno", None)
    where = f" in line {line}" if line else ""
    return f"{type(error).__name__}{where}: {str(error)[:MAX_REASON]}".removesuffix(": ")


def load_function(source: str) -> Callable[..., Any]:
    """The function of a source. Errors: any that its module level raises."""
    space: dict[str, Any] = {"__name__": "reward_function"}
    name, form, is_chat = called_function(source)
    execute = exec
    execute(compile(source, FILE, "exec"), space)
    function: Callable[..., Any] = space[name]
    if form == "verl":
        return _with_solution(function)
    return _with_lists(function, is_chat) if form == "lists" else function


def _with_solution(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of verl's form. The subject is its data source: that is what their files call it."""

    parameters = inspect.signature(function).parameters.values()
    names = {one.name for one in parameters}
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)

    def call(question: str, answer: str, response: str, **fields: str) -> Any:
        values = {
            "data_source": fields.get("subject", ""),
            "solution_str": response,
            "ground_truth": answer,
            "extra_info": {"question": question, **fields},
        }
        return function(**{name: value for name, value in values.items() if takes_all or name in names})

    return call


def _with_lists(function: Callable[..., Any], is_chat: bool) -> Callable[..., Any]:
    """A function of TRL's form, called with lists of one. is_chat: prompts and completions are lists of messages."""

    def message(role: str, text: str) -> Any:
        return [{"role": role, "content": text}] if is_chat else text

    def call(question: str, answer: str, response: str, **fields: str) -> Any:
        return _only(rewards(question, answer, [response], **fields))

    def rewards(question: str, answer: str, responses: list[str], **fields: str) -> Any:
        count = len(responses)
        columns = {name: [value] * count for name, value in fields.items()} | {
            name: [answer] * count for name in ANSWER_NAMES
        }
        prompts = [message("user", question)] * count
        value = function(prompts=prompts, completions=[message("assistant", one) for one in responses], **columns)
        return _result(value)

    call.rewards = rewards  # type: ignore[attr-defined]
    return call


def compares(function: Callable[..., Any]) -> bool:
    """Whether a function of TRL's form rewards a response otherwise among others than by itself."""
    rewards = getattr(function, "rewards", None)
    if rewards is None:
        return False
    fields = {"id": "q1", "subject": "", "difficulty": ""}
    try:
        alone = [rewards("What is 2+2?", "4", [text], **fields) for text in PROBES]
        together = list(rewards("What is 2+2?", "4", list(PROBES), **fields))
        repeated = [rewards("What is 2+2?", "4", [text], **fields) for text in PROBES]
    except Exception:
        return False  # what it cannot reward is another problem, which a real response shows
    return alone == repeated and [list(one) for one in alone] != [[one] for one in together]


def _only(value: Any) -> Any:
    """The reward in a list of one; None is unscorable. Error: BadResult."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise BadResult(f"it returned {type(value).__name__}: a function with completions returns a list of numbers")
    if len(value) != 1:
        raise BadResult(f"it returned {len(value)} rewards for one completion")
    return value[0]


def _result(value: Any) -> Any:
    """What a function returned, awaited if need be."""
    if not inspect.isawaitable(value):
        return value
    import asyncio  # after use_pipes, and slow

    return asyncio.run(_awaited(value))


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
    has_network, is_inner = first["has_network"], first["is_inner"]
    has_quota = has_own_folder(folder, has_network=has_network)
    os.chdir(folder)
    try:
        confine(folder, has_quota, first["memory_bytes"], None, is_inner=is_inner, has_network=has_network)
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
            case = json.loads(line)
            if not case:
                content = {"failed": COMPARES} if compares(function) else {"ready": True}
            else:
                content = checked_result(_result(function(**case)))
        except BaseException as error:  # SystemExit and MemoryError too
            content = {"failed": failure(error)}
        reply(content)


if __name__ == "__main__":
    main()
    os._exit(0)  # does not wait for threads of the function
