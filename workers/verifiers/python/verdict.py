"""The verdict of tests: they are run, and a failure is put into words."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Any

from workers.verifiers.python.code_connection import ConnectionBroken, Unsupported
from workers.verifiers.python.forms import NotRun, Tests
from workers.verifiers.python.values import is_copy


def verdict_of(tree: ast.Module, space: dict[str, Any], helpers: dict[str, Any], credit: str) -> dict[str, Any]:
    """`{"passed": true}`, `{"failed": reason}`, or `{"unscorable": reason}`; with the credit "partial" a failure has
    also "held": [assertions that hold, all assertions].

    tree: of the tests.  space: what they use of the code and the prompt.  helpers: of the prompt alone.  Error:
    ConnectionBroken.
    """
    tests = Tests(tree)
    try:
        num_assertions = tests.run(space)
    except ConnectionBroken:
        raise
    except (NotRun, Unsupported) as error:
        return {"unscorable": str(error)}
    except BaseException as error:
        if type(error).__name__ in ("SkipTest", "Skipped") and not is_copy(type(error)) and not _code_line(error):
            return {"unscorable": f"its tests skip themselves ({str(error)[:200]})"}
        result: dict[str, Any] = {"failed": reason(error)}
        if credit == "partial":
            with suppress(BaseException):  # of the connection too, which says so itself
                result["held"] = tests.num_held(space, helpers)
        return result
    return {"passed": True} if num_assertions else {"unscorable": "its tests ran no assertion"}


def reason(error: BaseException) -> str:
    """The error, and its line in the answer or the tests."""
    line, file = _code_line(error), "answer"
    if line is None:
        line, file = error_line(error, "tests"), "tests"
    where = f" (line {line} of the {file})" if line else ""
    return f"{type(error).__name__}{where}: {str(error)[:200]}".removesuffix(": ")


def _code_line(error: BaseException) -> int | None:
    """The last line of the code that the error passed, in this process or the other one."""
    return getattr(error, "_line_of_code", None) or error_line(error, "answer")


def error_line(error: BaseException, filename: str) -> int | None:
    """The last line in a file that the error passed."""
    line, trace = None, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
