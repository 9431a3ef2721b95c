"""The harness as a process of its own: started in its Python, watched, and ended.

Its output goes where the trainer's goes. No torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from workers import heartbeat
from workers.contract.repository import ROOT
from workers.contract.spec.harness import INSTALL_HARNESS, PYTHON_VARIABLE

DRIVER = ROOT / "workers" / "harness" / "driver.py"
MAX_RESULT_BYTES = 64 * 2**20
DESCRIPTION_S = 120.0  # for its version, from a slow disk
GRACE_S = 5.0  # between TERM and KILL
POLL_S = 0.1
LOOK_S = 1.0  # between looks at its processor time, which reads all processes of the host
# Variables of this project's own processes, without which the harness imports only its own packages.
_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "HACRL_DEATH_PIPE", "HACRL_KEYS_PIPE")


class HarnessFailed(RuntimeError):
    """The harness is not there, or ended without results; the text says what happened, and what to do."""


def python_of_harness() -> str:
    """Error: HarnessFailed."""
    python = os.environ.get(PYTHON_VARIABLE, "")
    if not python or not os.access(python, os.X_OK):
        where = f"{python} is not there" if python else f"{PYTHON_VARIABLE} names no Python"
        raise HarnessFailed(
            f"lm-evaluation-harness is not installed on this host ({where}): run `{INSTALL_HARNESS}` there, or "
            f"set {PYTHON_VARIABLE} to the Python that has it"
        )
    return python


def call(
    verb: str, folder: Path, *arguments: str, time_limit_s: float, check: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """One call of driver.py, with `folder` as its working directory. check: may raise, which ends the process.

    Errors: HarnessFailed, and those of `check`.
    """
    result = folder / f"{verb}.json"
    result.unlink(missing_ok=True)
    command = [python_of_harness(), str(DRIVER), verb, str(result), *arguments]
    variables = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    variables |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise HarnessFailed(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        status = _wait(process, time_limit_s, check)
    finally:
        _end(process)
    return _answer(result, status)


def _wait(process: subprocess.Popen[bytes], time_limit_s: float, check: Callable[[], None]) -> int:
    """The exit status. A heartbeat is sent only while it or a child uses a processor, so that a hang is noticed.

    Errors: HarnessFailed, and those of `check`.
    """
    deadline, work, next_look = time.monotonic() + time_limit_s, -1.0, 0.0
    while process.poll() is None:
        check()
        now = time.monotonic()
        if now > deadline:
            raise HarnessFailed(f"lm-evaluation-harness did not end within {time_limit_s:.0f} s and was killed")
        if now >= next_look:
            next_look = now + LOOK_S
            if (used := processor_time(process.pid)) != work:
                work = used
                heartbeat.send_heartbeat()
        time.sleep(POLL_S)
    return process.returncode


def processor_time(pid: int) -> float:
    """Seconds of processors that the process and all its descendants have used, with those that it has waited for."""
    total = 0.0
    with contextlib.suppress(psutil.Error):  # it has ended
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += sum(one.cpu_times()[:4])  # user and system, its own and of children it has waited for
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM, then KILL, to its whole group."""
    assert process.stdin
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()
    process.stdin.close()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _answer(result: Path, status: int) -> dict[str, Any]:
    """What the driver wrote. Error: HarnessFailed."""
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    try:
        if result.stat().st_size > MAX_RESULT_BYTES:
            raise HarnessFailed(f"lm-evaluation-harness wrote more than {MAX_RESULT_BYTES // 2**20} MiB of results")
        answer = json.loads(result.read_bytes())
    except FileNotFoundError:
        raise HarnessFailed(f"lm-evaluation-harness {how} and wrote no results: the log has its output") from None
    except (ValueError, RecursionError) as error:
        raise HarnessFailed(f"the results of lm-evaluation-harness are not JSON ({str(error)[:100]})") from None
    if not isinstance(answer, dict):
        raise HarnessFailed("the results of lm-evaluation-harness are not a JSON object")
    if answer.get("error"):
        raise HarnessFailed(f"lm-evaluation-harness: {str(answer['error'])[:2000]}")
    if status:
        raise HarnessFailed(f"lm-evaluation-harness {how}: the log has its output")
    return answer
