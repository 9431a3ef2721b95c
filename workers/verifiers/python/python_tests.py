"""The python verifier: the solution in a response must pass the tests in the reference answer.

The child process, `python -m workers.verifiers.python.python_tests MEMORY_BYTES SECONDS KIND HASH_SEED`, starts a
further program for every answer, `workers.verifiers.python.python_runner`, in a sandbox. There the tests run in one
process and the code in another: what the code does to its own process changes no verdict.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from workers.contract.repository import ROOT
from workers.verifiers.children.child_server import Incorrect, Unscorable, serve_verifier, write_refusal
from workers.verifiers.python import python_runner
from workers.verifiers.python.bubblewrap import bubblewrap
from workers.verifiers.python.degenerate.solutions import REWARDED, TRIAL
from workers.verifiers.python.fences import solution_code
from workers.verifiers.python.reference import split_reference
from workers.verifiers.python.sandbox import CPU_SECONDS, child_environment
from workers.verifiers.scoring.verdicts import NO_REFERENCE, Query, Verdict

MAX_CHARACTERS = 100_000
MAX_REPORT_BYTES = 4096
RUNNER = ("-m", python_runner.__name__)  # imported here too, so that Python stores its compiled modules
GRACE_S = 0.2  # for ending the process after the time limit and reporting it
_CREDITS = {"python": "all", "python_partial": "partial", TRIAL: "trial"}
NO_CODE = Verdict(0.0, "no closed block of Python code")
TOO_LONG = Verdict(0.0, f"code longer than {MAX_CHARACTERS} characters")


def python_verdict(completion: str, gold: str) -> Verdict | Query:
    """For the child process: the response's code and the tests."""
    code = solution_code(completion, split_reference(gold)[0])
    if code is None or not code.strip():
        return NO_CODE
    if not gold.strip():
        return NO_REFERENCE
    return TOO_LONG if len(code) > MAX_CHARACTERS else (code, gold)


def unclear_tests(gold: str) -> str:
    """Why tests cannot tell correct from incorrect code; empty if they may."""
    try:
        prefix, tests = split_reference(gold)
        tree = ast.parse(tests)
        ast.parse(prefix)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # MemoryError: nested too deeply
        return f"no Python: {error or type(error).__name__}"
    asserts = (
        isinstance(node, ast.Assert | ast.Raise) or (isinstance(node, ast.Attribute) and node.attr.startswith("assert"))
        for node in ast.walk(tree)
    )
    return "" if any(asserts) else "its tests assert nothing"


def passes(
    tests: str, code: str, *, seconds: int, hash_seed: str = "0", kind: str = "python"
) -> bool | tuple[float, str]:
    """True if the code passes the tests, a reference answer; of kind python_partial else the share of its assertions
    that hold, below 1, with the reason; of kind TRIAL 0 with the degenerate solutions that pass.

    Errors: Incorrect, Unscorable (time ran out, or nothing can run).
    """
    prefix, tests = split_reference(tests)
    credit = _CREDITS[kind]
    ending = _run({"prefix": prefix, "code": code, "tests": tests, "credit": credit}, seconds, hash_seed)
    report = ending.report
    if report.get("passed") is True and ending.status == 0:
        return True
    for why in ("unavailable", "unscorable"):
        if why in report:
            raise Unscorable(str(report[why])[:300])
    # Processor time does not depend on how busy the machine is.
    if ending.status == -signal.SIGXCPU or max(ending.processor_s, report.get("late", 0.0)) >= CPU_SECONDS:
        raise Incorrect(f"its tests took more than {CPU_SECONDS} s of processor time")
    if ending.is_late or "late" in report:
        raise Unscorable(f"its tests did not end in {seconds} s", is_timeout=True)
    if ending.status == -signal.SIGKILL or "killed" in report:  # from outside: the sandbox allows no signals
        raise Unscorable("its process was killed")
    failed = str(report.get("failed", "the tests ended before their end"))[:300]
    if report.get("rewarded") and ending.status == 0:
        return 0.0, REWARDED + ", ".join(report["rewarded"])
    if credit == "partial" and ending.status == 0 and "held" in report:
        num_held, num_units = report["held"]
        if 0 < num_held <= num_units and num_units > 1:  # all may hold where the tests fail between them
            share = round(min(num_held, num_units - 1) / num_units, 6)
            return share, f"{num_held} of {num_units} assertions; {failed}"[:300]
    raise Incorrect(failed)


@dataclass(frozen=True)
class _Ending:
    """How the tests ended: their report, exit status, whether the time ran out, and the processor time."""

    report: dict[str, Any]
    status: int
    is_late: bool
    processor_s: float


def _run(request: dict[str, str], seconds: int, hash_seed: str) -> _Ending:
    """Run one answer in a new process and a temporary folder, which stays empty: see `sandbox.has_own_folder`."""
    with tempfile.TemporaryDirectory(prefix="hacrl-tests-", ignore_cleanup_errors=True) as folder:
        begin_s, end_s = _processor_s(), time.monotonic() + seconds
        outer = bubblewrap(folder)
        process = subprocess.Popen(
            [*outer, sys.executable, "-s", "-B", *RUNNER, folder, repr(end_s), "outer" if outer else "alone"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=child_environment(folder, hash_seed),
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            with suppress(BrokenPipeError):  # it ended at once, without a sandbox
                process.stdin.write(json.dumps(request).encode())
                process.stdin.close()
            handle = os.pidfd_open(process.pid)
            has_ended = bool(select.select([handle], [], [], max(0.0, end_s - time.monotonic()) + GRACE_S / 2)[0])
            os.close(handle)
            os.killpg(process.pid, signal.SIGKILL)  # also the code's process, which cannot leave the group
            status = process.wait()
            status = 128 - status if outer and status > 128 else status  # how Bubblewrap passes on a signal
            os.set_blocking(process.stdout.fileno(), False)
            report = process.stdout.read(MAX_REPORT_BYTES) or b""
    try:
        content = json.loads(report)
    except ValueError:
        content = {}
    return _Ending(content, status, not has_ended, _processor_s() - begin_s)


def _processor_s() -> float:
    """Processor time of all finished children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Serve until stdin ends, if this machine supports the sandbox."""
    memory_bytes, seconds, kind, hash_seed = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    if sys.platform != "linux":
        write_refusal("running code of responses needs Linux")
        return
    try:
        passes("assert f() == 1", "def f(): return 1", seconds=20)  # the first start is slow
    except (Unscorable, Incorrect) as error:
        write_refusal(str(error))
    else:
        serve_verifier(partial(passes, seconds=seconds, hash_seed=hash_seed, kind=kind), memory_bytes, seconds, GRACE_S)


if __name__ == "__main__":
    main()
