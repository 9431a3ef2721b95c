"""The process in which code of a response meets its tests: one answer, then it ends. Started by
`workers.verifiers.python.python_tests`.

It reads `{code, tests, token, folder}` on stdin, closes every way out but one pipe, puts up its fences, and runs both
texts in one namespace. What it writes last is the token where all tests passed, else `{"failed"}` with the reason; the
token and a reason where the fences do not stand, before anything has run.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from workers.verifiers.python.sandbox import NoJail, confine


class Failed(Exception):
    """A test did not pass."""


def run_tests(code: str, tests: str) -> None:
    """Run both. Error: whatever the code or a test raises."""
    execute, build = exec, compile  # the code may put others in their place
    space: dict[str, Any] = {"__name__": "solution"}
    execute(build(code, "answer", "exec"), space)
    before = dict(space)
    execute(build(tests, "tests", "exec"), space)
    unittest: Any = sys.modules.get("unittest")
    # Tests in the manner of unittest and pytest are run too; plain assertions have been by now.
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
    """What went wrong, and where in which of the two texts."""
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
    except (NoJail, OSError, ValueError) as error:
        write(channel, f"{token}{error}".encode())
        sys.exit(1)
    try:
        run_tests(request["code"], request["tests"])
        reply = token
    except BaseException as error:  # SystemExit too: no test ends that way
        reply = json.dumps({"failed": reason(error)})
    write(channel, reply.encode())
    os._exit(0)  # threads of the code do not keep it alive


if __name__ == "__main__":
    main()
