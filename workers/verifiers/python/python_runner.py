"""The process that runs the code of one response with its tests; `workers.verifiers.python.python_tests` starts it.

It reads `{code, tests, token, folder}` from stdin, closes all descriptors but one pipe, enters the sandbox, and runs
both texts in one namespace. It writes the token if all tests passed, else `{"failed"}` with the reason; without a
sandbox it runs nothing and writes the token and a reason.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from workers.verifiers.python.sandbox import SandboxUnavailable, confine


class Failed(Exception):
    """A test did not pass."""


def run_tests(code: str, tests: str) -> None:
    """Run both. Errors: any that the code or a test raises."""
    execute, build = exec, compile  # the code may replace the builtins
    space: dict[str, Any] = {"__name__": "solution"}
    execute(build(code, "answer", "exec"), space)
    before = dict(space)
    execute(build(tests, "tests", "exec"), space)
    unittest: Any = sys.modules.get("unittest")
    # Plain assertions have run by now; unittest's classes and pytest's functions follow.
    for name, thing in [*space.items()]:
        if thing is before.get(name):
            continue
        if unittest and isinstance(thing, type) and issubclass(thing, unittest.TestCase):
            result = unittest.TestResult()
            unittest.defaultTestLoader.loadTestsFromTestCase(thing).run(result)
            for _, trace in [*result.errors, *result.failures]:
                raise Failed(trace.strip().splitlines()[-1])
        elif name.startswith("test_") and callable(thing):
            thing()


def reason(error: BaseException) -> str:
    """The error, and its line in the answer or the tests."""
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in ("answer", "tests")]
    where = f" (line {places[-1].lineno} of the {places[-1].filename})" if places else ""
    return f"{type(error).__name__}{where}: {str(error)[:200]}".removesuffix(": ")


def main() -> None:
    request = json.load(sys.stdin)
    token = request.pop("token")
    channel = os.dup(1)
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    os.chdir(request["folder"])
    sys.path.pop(0)  # the project's own folder
    write = os.write
    try:
        confine(Path(request["folder"]))
    except (SandboxUnavailable, OSError, ValueError) as error:
        write(channel, f"{token}{error}".encode())
        sys.exit(1)
    try:
        run_tests(request["code"], request["tests"])
        reply = token
    except BaseException as error:  # SystemExit too
        reply = json.dumps({"failed": reason(error)})
    write(channel, reply.encode())
    os._exit(0)  # does not wait for threads of the code


if __name__ == "__main__":
    main()
