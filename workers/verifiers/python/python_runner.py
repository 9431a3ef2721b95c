"""Runs the code of one response and its tests, in two processes; `workers.verifiers.python.python_tests` starts it.

`python -m workers.verifiers.python.python_runner FOLDER DEADLINE outer|alone` forks: the child enters the sandbox and
serves the code (`workers.verifiers.python.solution_process`); this process enters it too, reads `{prefix, code, tests,
credit}` from stdin, runs the tests and writes one JSON object: `{"passed": true}`, `{"failed": reason}`, with the
credit "partial" and "held": [assertions that hold, all assertions], `{"unscorable": reason}` or `{"late": processor
seconds}`. The child was forked before the tests were read, and has no descriptor of this report.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from workers.verifiers.python.event_loop import use_pipes
from workers.verifiers.python.fences import parses
from workers.verifiers.python.peer import TooLate, Unsupported, error_line, is_remote
from workers.verifiers.python.sandbox import CPU_SECONDS, SandboxUnavailable, confine, has_own_folder
from workers.verifiers.python.solution_process import serve_solution
from workers.verifiers.python.test_forms import NOT_USED, NotRun, run_helpers, run_tests
from workers.verifiers.python.test_process import Tests
from workers.verifiers.python.test_units import num_units_held

SPARE_S = 0.1  # for the report, within the time limit


def reason(error: BaseException) -> str:
    """The error, and its line in the answer or the tests."""
    line, file = getattr(error, "answer_line", None), "answer"
    if line is None:
        line, file = error_line(error, "tests"), "tests"
    where = f" (line {line} of the {file})" if line else ""
    return f"{type(error).__name__}{where}: {str(error)[:200]}".removesuffix(": ")


def verdict(tests_end: Tests, request: dict[str, str], solution: int) -> dict[str, Any]:
    """Run the code, then the tests."""
    failed = ""
    space: dict[str, Any] | None = None
    try:
        for part, name in _parts(request["prefix"], request["code"]):
            tests_end.ask("run", part, name)
        tree = ast.parse(request["tests"], "tests")
        space = tests_end.names_for(tree) | run_helpers(request["prefix"])
        num_assertions = run_tests(tree, space)
    except TooLate:
        pass
    except (NotRun, Unsupported) as error:
        return {"unscorable": str(error)}
    except BaseException as error:
        if type(error).__name__ in ("SkipTest", "Skipped") and not is_remote(type(error)):
            return {"unscorable": f"its tests skip themselves ({str(error)[:200]})"}
        failed = reason(error)
    if tests_end.breach:  # also where a test caught the error
        return _ending(tests_end.breach, solution)
    if failed and request.get("credit") == "partial" and space is not None:
        held = _partial(tests_end, request, space)
        return _ending(tests_end.breach, solution) if tests_end.breach else {"failed": failed} | held
    if failed:
        return {"failed": failed}
    if not num_assertions:
        return {"unscorable": "its tests ran no assertion"}
    if not tests_end.num_calls:
        return {"unscorable": NOT_USED}
    return {"passed": True}


def _partial(tests_end: Tests, request: dict[str, Any], space: dict[str, Any]) -> dict[str, Any]:
    """How many assertions hold, of how many; empty if the code breaks the connection or takes too long."""
    with suppress(BaseException):
        held = num_units_held(ast.parse(request["tests"], "tests"), space, run_helpers(request["prefix"]))
        if not tests_end.breach and tests_end.num_calls:
            return {"held": held}
    return {}


def _parts(prefix: str, code: str) -> list[tuple[str, str]]:
    """What the process of the code runs, with the names of its parts."""
    if prefix and not parses(code) and parses(whole := f"{prefix}\n{code}"):
        return [(whole, "answer")]  # the body of the function that the prefix begins
    return [*([(prefix, "prompt")] if prefix else []), (code, "answer")]


def _ending(breach: str, solution: int) -> dict[str, Any]:
    """What ended the connection to the process of the code."""
    if breach == "the time is over":
        return {"late": time.clock_gettime(~solution << 3 | 2)}  # the processor clock of that process
    for _ in range(100):
        number, status, usage = os.wait4(solution, os.WNOHANG)
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
    has_quota = has_own_folder(folder) or is_inner  # the folder that Bubblewrap makes is limited too
    os.chdir(folder)
    use_pipes()
    requests, replies = os.pipe(), os.pipe()
    report = os.dup(1)
    solution = os.fork()
    try:
        if solution == 0:
            _enter(folder, has_quota, is_inner, [requests[0], replies[1]])
            serve_solution(requests[0], replies[1])
        source = os.fdopen(os.dup(0), "rb")
        _enter(folder, has_quota, is_inner, [requests[1], replies[0], report, source.fileno()])
    except (SandboxUnavailable, OSError, ValueError) as error:
        if solution == 0:
            os._exit(1)
        os.write(report, json.dumps({"unavailable": str(error)}).encode())
        sys.exit(1)
    tests_end = Tests(replies[0], requests[1])
    tests_end.deadline = deadline - SPARE_S
    result = verdict(tests_end, json.loads(source.read()), solution)
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
