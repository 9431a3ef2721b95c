"""Short child processes, `python -m workers.<module>`: the web process loads no ML library.

Time, memory and processor time are limited. A child gets no secret of ours but a Hub token or the key
of a judge on its standard input where it asks one, and nothing that it starts outlives it.
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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from hacrl_web.web.errors import FieldErrors

# The variables that a child gets: where programs and the hub are.
PASSED_ON = {"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"}
PASSED_ON |= {"HACRL_BUBBLEWRAP", "HACRL_JUDGE_ALLOW", "HACRL_REWARD_NETWORK"}
PASSED_ON_PREFIXES = ("HF_", "TRANSFORMERS_")
PASSED_ON_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
AT_ONCE = 2  # children of one program in one web process
GIB = 2**30


@dataclass(frozen=True)
class ChildResult:
    """What a child printed, and its exit status (negative: the signal). is_late: it was killed at its time limit."""

    output: bytes
    status: int
    is_late: bool

    @property
    def ending(self) -> str:
        return f"signal {-self.status}" if self.status < 0 else f"exit status {self.status}"


@dataclass
class ChildProgram:
    """A module of `workers` that answers with one JSON object. At most AT_ONCE of its processes run at a time."""

    module: str
    busy: str  # the message if no turn came
    timeout_s: float = 60.0
    cpu_s: int = 60
    memory_bytes: int = 4 * GIB  # address space, of which an ML library maps much more than it uses
    wait_s: float = 10.0  # for a turn
    turns: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(AT_ONCE))

    def ask(
        self,
        *arguments: str,
        at: str,
        request: dict[str, Any] | None = None,
        memory_bytes: int = 0,
        hub_token: str = "",
    ) -> dict[str, Any]:
        """The object that the child printed, its refusals included. Error: FieldErrors at the field `at`.

        request: goes to the child's standard input as JSON. memory_bytes: instead of the program's own limit.
        hub_token: joins the request, for it may stand in neither arguments nor environment.
        """
        if hub_token:
            request = (request or {}) | {"hub_token": hub_token}
        if not self.turns.acquire(timeout=self.wait_s):
            raise FieldErrors.single("busy", f"{self.busy} Try again in a minute.", at, status=503)
        try:
            stdin = None if request is None else json.dumps(request).encode()
            result = self.run(arguments, stdin, memory_bytes or self.memory_bytes)
        finally:
            self.turns.release()
        if result.is_late:
            message = f"This took longer than {self.timeout_s:.0f} s and was stopped."
            raise FieldErrors.single("too_slow", message, at)
        try:
            answer = json.loads(result.output, parse_constant=lambda text: None)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            message = f"The process ended without an answer ({result.ending}): the files may be damaged or too large."
            raise FieldErrors.single("inspection_failed", message, at)
        return _storable(answer)

    def run(self, arguments: Sequence[str], stdin: bytes | None, memory_bytes: int) -> ChildResult:
        limits: dict[str, Any] = {"timeout_s": self.timeout_s, "cpu_s": self.cpu_s, "memory_bytes": memory_bytes}
        return run_child(self.module, arguments, stdin=stdin, **limits)


INSPECTOR = ChildProgram(
    "workers.inspection.inspect_model", "Too many inspections at once.", cpu_s=120, memory_bytes=12 * GIB, wait_s=60.0
)
TOKEN_OPTION = ("--token-on-stdin",)  # of the inspector, with a token
PREVIEWER = ChildProgram(
    "workers.inspection.preview_prompts",
    "Other prompts are being prepared.",
    timeout_s=120.0,  # eight tokenizers on a busy machine
    cpu_s=120,
    memory_bytes=12 * GIB,
    wait_s=20.0,
)
PROMPT_LENGTHS = ChildProgram(
    "workers.inspection.preview_prompts", "Other prompts are being measured.", memory_bytes=12 * GIB
)
IMPORTER = ChildProgram(
    "workers.questions.import_cli",
    "Too many files are read at once.",
    timeout_s=600.0,
    cpu_s=600,
    memory_bytes=GIB // 2,  # enough for 200 MB of JSONL
    wait_s=60.0,
)
HUB_ACCOUNT = ChildProgram("workers.hub.account", "Other tokens are being checked.", timeout_s=30.0, cpu_s=30)
HUB_ACCESS = ChildProgram(  # the hub has 3 of its 6 seconds: a launch waits for it
    "workers.hub.access", "Other launches ask the hub.", timeout_s=6.0, cpu_s=10, wait_s=1.0
)
# The verifier's process may take long to start on a busy machine.
VERIFIER = ChildProgram("workers.verifiers.try_out.try_answer", "Other answers are being checked.", timeout_s=45.0)
REWARD_FUNCTION = ChildProgram("workers.verifiers.try_out.try_reward", "Other reward functions are being tried.")
JUDGE = ChildProgram(  # a local model has to load
    "workers.verifiers.try_out.try_reward",
    "Other judges are being tried.",
    timeout_s=180.0,
    cpu_s=600,
    memory_bytes=64 * GIB,
)


def _storable(value: Any) -> Any:
    """The value without what a database's JSON refuses: NUL, lone surrogates and integers beyond 64 bits."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value


def run_child(
    module: str,
    arguments: Sequence[str] = (),
    *,
    timeout_s: float,
    memory_bytes: int,
    cpu_s: int,
    stdin: bytes | None = None,
) -> ChildResult:
    """Run `python -m module` to its end or its time limit."""
    # In an empty folder, no file or folder can be mistaken for a hub id or a module.
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
    return ChildResult(output, child.returncode, is_late)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # pgid = pid: it leads its own session
    child.wait()


def _limit(pid: int, memory_bytes: int, cpu_s: int) -> None:
    """Memory and CPU limits, set from outside: code between fork and exec is unsafe beside threads."""
    prlimit = getattr(resource, "prlimit", None)  # Linux only; elsewhere only time is limited
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
    variables |= {"PYTHONPATH": str(settings.BASE_DIR), "PYTHONSAFEPATH": "1", "TOKENIZERS_PARALLELISM": "false"}
    # Tokenizers are read without torch; transformers would say so on the terminal.
    return variables | {"TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
