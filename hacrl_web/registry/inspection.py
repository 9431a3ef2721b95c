"""Asks the trainer's side what a model or a question file is, in a short child process with limits.

The web process loads no ML library: `python -m workers.inspect` prints one JSON object and ends.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from typing import Any

from django.conf import settings

from hacrl_web.errors import FieldError, FieldErrors

TIMEOUT_S = 60.0
MEMORY_BYTES = 12 * 2**30  # address space, of which an ML library maps much more than it uses
CPU_S = 120
AT_ONCE = 2  # children of one web process
# What a child may know: where programs and the hub are, no secret of ours.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
PASSED_ON_PREFIXES = ("HF_", "TRANSFORMERS_")
PASSED_ON_PROXIES = ("http_proxy", "https_proxy", "no_proxy")

_turns = threading.BoundedSemaphore(AT_ONCE)


def inspect(verb: str, *arguments: str, field: str) -> dict[str, Any]:
    """The object that the child printed, refusals included. Error: FieldErrors at `field` where there is none."""
    if not _turns.acquire(timeout=TIMEOUT_S):
        raise FieldErrors([FieldError("busy", "Too many inspections at once. Try again in a minute.", field)], 503)
    try:
        output, status = _run_child([verb, *arguments])
    except subprocess.TimeoutExpired:
        message = f"The inspection took longer than {TIMEOUT_S:.0f} s and was ended."
        raise FieldErrors([FieldError("too_slow", message, field)]) from None
    finally:
        _turns.release()
    try:
        answer = json.loads(output, parse_constant=lambda text: None)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        ending = f"signal {-status}" if status < 0 else f"exit status {status}"
        message = f"The inspection ended without an answer ({ending}): the files may be damaged or too large."
        raise FieldErrors([FieldError("inspection_failed", message, field)])
    return _storable(answer)


def _run_child(arguments: list[str]) -> tuple[bytes, int]:
    """Run `python -m workers.inspect` and return what it printed and its exit status. Error: TimeoutExpired."""
    # An empty folder to stand in: nothing named there can be taken for a hub id or a module.
    with tempfile.TemporaryDirectory(prefix="hacrl-inspect-") as empty:
        child = subprocess.Popen(
            [sys.executable, "-m", "workers.inspect", *arguments],
            cwd=empty,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        _limit(child.pid)
        try:
            output, _ = child.communicate(timeout=TIMEOUT_S)
        finally:
            _kill_group(child)
    return output, child.returncode


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Nothing that the child started outlives it."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # pgid = pid: it leads its own session
    child.wait()


def _limit(pid: int) -> None:
    """Memory and CPU limits, set from outside: code between fork and exec is unsafe beside threads."""
    prlimit = getattr(resource, "prlimit", None)  # Linux only; elsewhere the time limit stands alone
    if prlimit is None:
        return
    with suppress(ProcessLookupError):
        prlimit(pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        prlimit(pid, resource.RLIMIT_CPU, (CPU_S, CPU_S))
        prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES) or name.lower() in PASSED_ON_PROXIES
    }
    return kept | {"PYTHONPATH": str(settings.BASE_DIR), "PYTHONSAFEPATH": "1", "TOKENIZERS_PARALLELISM": "false"}


def _storable(value: Any) -> Any:
    """The same without what a database's JSON refuses: NUL and lone surrogates in texts, endless integers."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value
