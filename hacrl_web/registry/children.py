"""Short child processes, `python -m workers.<verb>`: the web loads no ML library, and what one asks may take too long.

Time, memory and processor time are limited; no secret of ours is passed on; nothing that a child starts outlives it.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.conf import settings

# What a child may know: where programs and the hub are, no secret of ours.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
PASSED_ON_PREFIXES = ("HF_", "TRANSFORMERS_")
PASSED_ON_PROXIES = ("http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Ended:
    """What a child printed, and its exit status (negative: the signal). is_late: it was killed at its time limit."""

    output: bytes
    status: int
    is_late: bool

    @property
    def ending(self) -> str:
        return f"signal {-self.status}" if self.status < 0 else f"exit status {self.status}"


def run_child(
    module: str,
    arguments: Sequence[str] = (),
    *,
    timeout_s: float,
    memory_bytes: int,
    cpu_s: int,
    stdin: bytes | None = None,
) -> Ended:
    """Run `python -m module` to its end or its time limit."""
    # An empty folder to stand in: nothing named there can be taken for a hub id or a module.
    with tempfile.TemporaryDirectory(prefix="hacrl-child-") as empty:
        child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=empty,
            env=_environment(),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        is_late = False
        try:
            _limit(child.pid, memory_bytes, cpu_s)
            output, _ = child.communicate(input=stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            is_late = True
            _kill_group(child)
            output, _ = child.communicate()  # what it had printed by then
        finally:
            _kill_group(child)
    return Ended(output, child.returncode, is_late)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Nothing that the child started outlives it."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # pgid = pid: it leads its own session
    child.wait()


def _limit(pid: int, memory_bytes: int, cpu_s: int) -> None:
    """Memory and CPU limits, set from outside: code between fork and exec is unsafe beside threads."""
    prlimit = getattr(resource, "prlimit", None)  # Linux only; elsewhere the time limit stands alone
    if prlimit is None:
        return
    with suppress(ProcessLookupError):
        prlimit(pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        prlimit(pid, resource.RLIMIT_CPU, (cpu_s, cpu_s))
        prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def _environment() -> dict[str, str]:
    variables = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES) or name.lower() in PASSED_ON_PROXIES
    }
    return variables | {"PYTHONPATH": str(settings.BASE_DIR), "PYTHONSAFEPATH": "1", "TOKENIZERS_PARALLELISM": "false"}
