"""The python verifier: the last Python block of a response is run together with the reference answer, which is tests.

This file's child process, `python -m workers.verifiers.python.python_tests MEMORY_BYTES SECONDS`, starts one more for
every answer,
`workers.verifiers.python.python_runner`, with fences of its own (`workers.verifiers.python.sandbox`), and believes only
the token that it writes after the last test: code that ends the process early, with whatever exit status, has not
passed.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import secrets
import select
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial

from workers.contract.repository import ROOT
from workers.verifiers.children.child_server import Unscorable, Wrong, serve_verifier, write_refusal
from workers.verifiers.python.sandbox import CPU_SECONDS
from workers.verifiers.verdicts import NO_REFERENCE, Pair, Verdict

MAX_CHARACTERS = 100_000
MAX_REPORT_BYTES = 4096
GRACE_S = 0.2  # the answer's process is ended after the time limit; so much longer for telling it
NO_CODE = Verdict(0.0, "no closed block of Python code")
TOO_LONG = Verdict(0.0, f"code longer than {MAX_CHARACTERS} characters")
_TAGS = {"", "python", "py", "python3"}


def last_block(completion: str) -> str | None:
    """The code of the last fenced block without a language, or with Python's; None where it is not closed."""
    code: str | None = None
    block: list[str] | None = None
    is_python = False
    for line in completion.splitlines():
        if line.lstrip().startswith("```"):
            tag = line.strip().strip("`").strip().lower()
            if block is None:
                block, is_python = [], tag in _TAGS
                code = None if is_python else code  # a later block replaces an earlier one even if it is cut off
            else:
                code = "\n".join(block) if is_python else code
                block = None
        elif block is not None:
            block.append(line)
    return code


def python_verdict(completion: str, gold: str) -> Verdict | Pair:
    """What to ask a child about: the response's code and the tests."""
    code = last_block(completion)
    if code is None or not code.strip():
        return NO_CODE
    if not gold.strip():
        return NO_REFERENCE
    return TOO_LONG if len(code) > MAX_CHARACTERS else (code, gold)


def unclear_tests(gold: str) -> str:
    """Why tests could not tell right from wrong; empty where they may."""
    try:
        tree = ast.parse(gold)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # MemoryError: nested too deeply
        return f"no Python: {error or type(error).__name__}"
    asserts = (
        isinstance(node, ast.Assert | ast.Raise) or (isinstance(node, ast.Attribute) and node.attr.startswith("assert"))
        for node in ast.walk(tree)
    )
    return "" if any(asserts) else "its tests assert nothing"


def passes(tests: str, code: str, *, seconds: int) -> bool:
    """True where the code passes. Errors: Wrong with the reason; Unscorable where time ran out or nothing can run."""
    token = secrets.token_hex(16)
    ended = _run({"code": code, "tests": tests, "token": token}, seconds)
    if ended.report == token and ended.status == 0:
        return True
    if ended.report.startswith(token):  # written before any line of the code ran
        raise Unscorable(ended.report.removeprefix(token))
    if ended.status == -signal.SIGXCPU or ended.processor_s >= CPU_SECONDS:
        # The code's own doing, however busy the machine is.
        raise Wrong(f"its tests took more than {CPU_SECONDS} s of processor time")
    if ended.is_late:
        raise Unscorable(f"its tests did not end in {seconds} s", is_timeout=True)
    if ended.status == -signal.SIGKILL:  # the fences let it send no signal, so that was somebody else
        raise Unscorable("its process was killed")
    try:
        failed = json.loads(ended.report)["failed"]
    except (ValueError, TypeError, KeyError):
        failed = "the code ended before its tests did"
    raise Wrong(str(failed)[:300])


@dataclass(frozen=True)
class _Ended:
    """What the process reported last, its exit status, whether it was killed as too late, its processor time."""

    report: str
    status: int
    is_late: bool
    processor_s: float


def _run(request: dict[str, str], seconds: int) -> _Ended:
    """Run one answer in a process and a folder of its own, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="hacrl-tests-", ignore_cleanup_errors=True) as folder:
        environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": folder,
            "TMPDIR": folder,
            "PYTHONHASHSEED": "0",  # the same verdict every time
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        used = _processor_s()
        process = subprocess.Popen(
            [sys.executable, "-s", "-B", "-m", "workers.verifiers.python.python_runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            process.stdin.write(json.dumps({**request, "folder": folder}).encode())
            process.stdin.close()
            has_ended = _wait(process.pid, seconds)
            process.kill()  # it can have no children
            status = process.wait()
            os.set_blocking(process.stdout.fileno(), False)
            report = process.stdout.read(MAX_REPORT_BYTES) or b""
        return _Ended(report.decode(errors="replace"), status, not has_ended, _processor_s() - used)


def _processor_s() -> float:
    """Processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait(pid: int, seconds: float) -> bool:
    """Whether a child process ends in that time; it stays to be waited for."""
    handle = os.pidfd_open(pid)
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def main() -> None:
    """Serve until stdin ends, if this machine can run code behind fences."""
    memory_bytes, seconds = int(sys.argv[1]), int(sys.argv[2])
    if sys.platform != "linux":
        write_refusal("running code of responses needs Linux")
        return
    try:
        passes("assert True", "pass", seconds=20)  # the first start reads much from the disk
    except (Unscorable, Wrong) as error:
        write_refusal(str(error))
    else:
        serve_verifier(partial(passes, seconds=seconds), memory_bytes, seconds, GRACE_S)


if __name__ == "__main__":
    main()
