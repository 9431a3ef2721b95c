"""lm-evaluation-harness as a process: its own command, started in its Python, watched, and ended. No torch."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil

from workers import heartbeat
from workers.contract.spec.harness import METRIC_CODE_VARIABLE, PYTHON_VARIABLE

NO_METRIC_CODE = Path(__file__).parent / "no_metric_code"
MAX_RESULT_BYTES = 64 * 2**20
MAX_REASON = 1000  # characters
TAIL_BYTES = 16_384  # of its output, for the reason of a failure
GRACE_S = 5.0  # between TERM and KILL
POLL_S = 0.1
LOOK_S = 1.0  # between looks at its processor time, which reads all processes of the host
# Variables of this project's own processes, without which the harness imports only its own packages.
_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "HACRL_DEATH_PIPE", "HACRL_KEYS_PIPE")
_PR_SET_PDEATHSIG = 1


class HarnessFailed(RuntimeError):
    """The harness is not there, or ended without results; the text says what happened, and what to do."""


def python_of_harness() -> str:
    """Error: HarnessFailed."""
    python = os.environ.get(PYTHON_VARIABLE, "")
    if not python or not os.access(python, os.X_OK):
        where = f"{python} is not there" if python else f"{PYTHON_VARIABLE} names no Python"
        raise HarnessFailed(
            f"lm-evaluation-harness is not installed on this host ({where}): install it as docs/harness.md says, or "
            f"set {PYTHON_VARIABLE} to the Python that has it"
        )
    return python


def call_harness(
    settings: Mapping[str, Any], folder: Path, *, time_limit_s: float, check: Callable[[], None]
) -> dict[str, Any]:
    """What `lm_eval run --config` writes, with these settings in `folder`. check: may raise, which ends the process.

    Errors: HarnessFailed, and those of `check`.
    """
    config = folder / "config.json"
    config.write_text(json.dumps({**settings, "output_path": str(folder / "results.json")}), encoding="utf-8")
    command = [python_of_harness(), "-m", "lm_eval", "run", "--config", str(config)]
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_this_process(),  # no thread of this process holds a lock then
        )
    except OSError as error:
        raise HarnessFailed(f"{command[0]} cannot be started: {error.strerror}") from None
    assert process.stdout
    output = bytearray()
    reader = threading.Thread(target=_pass_on, args=(process.stdout, output), daemon=True)
    reader.start()
    try:
        status = _wait(process, time_limit_s, check)
    finally:
        _end(process)
        reader.join(GRACE_S)
    if status:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        raise HarnessFailed(f"lm-evaluation-harness {how}: {last_words(bytes(output))}")
    return _results(folder, bytes(output))


def environment() -> dict[str, str]:
    """The environment variables of the harness's process."""
    variables = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    variables |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONUNBUFFERED": "1"}
    has_metric_code = os.environ.get(METRIC_CODE_VARIABLE) == "1"
    return variables if has_metric_code else variables | {"PYTHONPATH": str(NO_METRIC_CODE)}


def _end_with_this_process() -> Callable[[], object] | None:
    """A function that makes the harness end if this process is killed alone; None but on Linux."""
    if sys.platform != "linux":
        return None
    return partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _pass_on(pipe: IO[bytes], tail: bytearray) -> None:
    """The output goes where the trainer's goes, and its end is kept."""
    while chunk := os.read(pipe.fileno(), 65_536):
        tail += chunk
        del tail[:-TAIL_BYTES]
        with contextlib.suppress(OSError):  # a full disk must not make the harness wait
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()


def last_words(output: bytes) -> str:
    """The text of the exception that an output ends with, else its last line."""
    lines = output.decode("utf-8", "replace").strip().splitlines() or ["it wrote nothing"]
    first = max((place for place, line in enumerate(lines[:-1]) if line.startswith(" ")), default=len(lines) - 2)
    return "\n".join(lines[first + 1 :]).strip()[-MAX_REASON:]


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
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _results(folder: Path, output: bytes) -> dict[str, Any]:
    """The JSON file of results. Error: HarnessFailed."""
    paths = sorted(folder.glob("results*.json"))  # it appends the time
    if not paths:
        raise HarnessFailed(f"lm-evaluation-harness ended without results: {last_words(output)}")
    if paths[-1].stat().st_size > MAX_RESULT_BYTES:
        raise HarnessFailed(f"lm-evaluation-harness wrote more than {MAX_RESULT_BYTES // 2**20} MiB of results")
    try:
        answer = json.loads(paths[-1].read_bytes())
    except (ValueError, RecursionError) as error:
        raise HarnessFailed(f"the results of lm-evaluation-harness are not JSON ({str(error)[:100]})") from None
    if not isinstance(answer, dict):
        raise HarnessFailed("the results of lm-evaluation-harness are not a JSON object")
    return answer
