"""Runs the code of one response and its tests, in two processes; `workers.verifiers.python.python_tests` starts it.

`python -m workers.verifiers.python.python_runner FOLDER DEADLINE outer|alone` forks: the child enters the sandbox and
serves the code (`workers.verifiers.python.code_process`); this process enters it too, reads `{prefix, code, tests,
credit}` from stdin, runs the tests and writes one JSON object: a verdict (`workers.verifiers.python.verdict`) or
`{"late": processor seconds}`. The child was forked before the tests were read, and has no descriptor of this report.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workers.verifiers.python.code_connection import CodeConnection
from workers.verifiers.python.code_process import serve_code
from workers.verifiers.python.degenerate.solutions import degenerate_solutions
from workers.verifiers.python.event_loop import use_pipes
from workers.verifiers.python.fences import parses
from workers.verifiers.python.forms import NOT_USED, run_helpers
from workers.verifiers.python.sandbox import CPU_SECONDS, SandboxUnavailable, confine, has_own_folder
from workers.verifiers.python.uses import code_names, why_one_process, with_methods
from workers.verifiers.python.verdict import reason, verdict_of

SPARE_S = 0.1  # for the report, within the time limit


def verdict(connection: CodeConnection, request: dict[str, str], code_process: int) -> dict[str, Any]:
    """Run the code, then the tests."""
    result: dict[str, Any] = {}
    try:
        for part, name in _parts(request["prefix"], request["code"]):
            connection.ask("run", part, name)
        result = _judged(connection, request["prefix"], request["tests"], request.get("credit", "all"))
    except BaseException as error:
        result = {"failed": reason(error)}
    if request.get("credit") == "trial" and "failed" in result and not connection.breach:
        return result | {"rewarded": [*rewarded_answers(connection, request["prefix"], request["tests"])]}
    if connection.breach:  # also where a test caught the error
        return _ending(connection.breach, code_process)
    if connection.classes and "failed" in result:
        names = ", ".join(sorted(connection.classes)[:3])
        result["failed"] += f"; the code returned an object of {names}: its tests compare plain values alone"
    return result


def _judged(connection: CodeConnection, prefix: str, tests: str, credit: str) -> dict[str, Any]:
    """The verdict of the tests, which run here, or with the code if they need objects of it."""
    if why_one_process(prefix, tests):
        return _checked(connection.ask("judge", prefix, tests, credit))
    tree = with_methods(ast.parse(tests, "tests"))
    helpers = run_helpers(prefix)
    result = verdict_of(tree, connection.names_for(tree) | helpers, helpers, credit)
    if not connection.num_calls:
        result.pop("held", None)
        return {"unscorable": NOT_USED} if result.get("passed") else result
    return result


def rewarded_answers(connection: CodeConnection, prefix: str, tests: str) -> Iterator[str]:
    """Names of the degenerate solutions that pass the tests, as far as the time allows."""
    for name, code in degenerate_solutions(code_names(prefix, tests)):
        try:
            connection.ask("run", code, "answer")
            result = _judged(connection, prefix, tests, "all")
        except BaseException:  # of the connection too, which then has ended
            result = {}
        if connection.breach:
            return
        if result.get("passed"):
            yield name


def _checked(result: Any) -> dict[str, Any]:
    """A verdict of the process of the code, which may have written anything."""
    if result.get("passed") is True:
        return {"passed": True}
    if "unscorable" in result:
        return {"unscorable": str(result["unscorable"])[:300]}
    checked: dict[str, Any] = {"failed": str(result["failed"])[:300]}
    if "held" in result:
        checked["held"] = [int(number) for number in result["held"][:2]]
    return checked


def _parts(prefix: str, code: str) -> list[tuple[str, str]]:
    """What the process of the code runs, with the names of its parts."""
    if prefix and not parses(code) and parses(whole := f"{prefix}\n{code}"):
        return [(whole, "answer")]  # the body of the function that the prefix begins
    return [*([(prefix, "prompt")] if prefix else []), (code, "answer")]


def _ending(breach: str, code_process: int) -> dict[str, Any]:
    """What ended the connection to the process of the code."""
    if breach == "the time is over":
        return {"late": time.clock_gettime(~code_process << 3 | 2)}  # the processor clock of that process
    for _ in range(100):
        number, status, usage = os.wait4(code_process, os.WNOHANG)
        if number and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return {"late": CPU_SECONDS}
        if number and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            # The limit's second signal, which cannot be caught, or one from outside. The kernel counts the limit in
            # ticks of its clock, so that the time may be less.
            is_over = usage.ru_utime + usage.ru_stime >= CPU_SECONDS * 0.75
            return {"late": CPU_SECONDS} if is_over else {"killed": True}
        if number or breach.startswith("the code's"):
            break
        time.sleep(0.002)  # its end is near, unless it has only closed the connection
    return {"failed": breach}


def main() -> None:
    folder, deadline, is_inner = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "outer"
    sys.path.pop(0)  # the project's own folder
    has_quota = has_own_folder(folder)
    os.chdir(folder)
    use_pipes()
    requests, replies = os.pipe(), os.pipe()
    report = os.dup(1)
    code_process = os.fork()
    try:
        if code_process == 0:
            _enter(folder, has_quota, is_inner, [requests[0], replies[1]])
            serve_code(requests[0], replies[1])
        source = os.fdopen(os.dup(0), "rb")
        _enter(folder, has_quota, is_inner, [requests[1], replies[0], report, source.fileno()])
    except (SandboxUnavailable, OSError, ValueError) as error:
        if code_process == 0:
            os._exit(1)
        os.write(report, json.dumps({"unavailable": str(error)}).encode())
        sys.exit(1)
    connection = CodeConnection(replies[0], requests[1], deadline - SPARE_S)
    result = verdict(connection, json.loads(source.read()), code_process)
    os.write(report, json.dumps(result).encode())
    os._exit(0)  # does not wait for threads


def _enter(folder: Path, has_quota: bool, is_inner: bool, descriptors: list[int]) -> None:
    """Close all descriptors but these, and enter the sandbox."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        if stream not in descriptors:
            os.dup2(nothing, stream)
    for number in range(3, 256):
        if number not in descriptors:
            try:
                os.close(number)
            except OSError:
                continue
    confine(folder, has_quota, is_inner=is_inner)


if __name__ == "__main__":
    main()
