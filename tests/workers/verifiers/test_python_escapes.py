"""Cheats and escapes: none is rewarded, none reaches anything outside, nothing stays behind. `-s` prints the list.

Escapes are tried by code of responses and by reward functions, behind each fence.
"""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.workers.processes import child_pids, remaining
from tests.workers.verifiers.python_escapes import CHEATS, RAW_CALLS, Attempt, escapes, raw_calls
from workers.contract.spec.reward_function import FunctionFile
from workers.verifiers.children.child_server import Incorrect, Unscorable
from workers.verifiers.functions import function_verifier
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier, RewardFunctionError
from workers.verifiers.python import python_tests
from workers.verifiers.python.bubblewrap import SWITCH, bubblewrap
from workers.verifiers.python.python_tests import passes
from workers.verifiers.python.uses import why_one_process

FS_IOC_GETFLAGS = 0x80086601
RUNNER = """
import sys
from workers.verifiers.functions import function_process
from workers.verifiers.python import python_runner, sandbox
def refuse(*args): raise sandbox.SandboxUnavailable("not here")
{change}
{module}.main()
"""
# Kernels that allow less than this one.
CHANGES = {
    "Landlock and seccomp, without namespaces": "{module}.has_own_folder = lambda folder, has_network=False: False",
    "Bubblewrap and seccomp": "sandbox._guard_files = refuse",
}
REWARD = """
def reward(question, answer, response, **fields):
    return float(f(2) == 4 and f(3) == 9)
"""


def runner(sandbox: str, module: str) -> tuple[str, str]:
    """Arguments of Python that run a program on such a kernel."""
    return "-c", RUNNER.format(change=CHANGES[sandbox].format(module=module), module=module)


def outcome_of_function(attempt: Attempt) -> str:
    """The same code in a reward function."""
    with FunctionVerifier(FunctionFile("escape", attempt.code + REWARD), time_limit_s=8) as verifier:
        try:
            [verdict] = verifier.score_cases([Case("q", "a", "r")])
        except RewardFunctionError as error:
            return str(error).partition("fails: ")[2]
    return "rewarded" if verdict.reward else "?"


def outcome(attempt: Attempt) -> str:
    try:
        return "rewarded" if passes(attempt.tests, attempt.code, seconds=8) else "?"
    except (Incorrect, Unscorable) as error:
        return f"{type(error).__name__.lower()}: {error}"


def outcomes(attempts: list[Attempt], tried: Callable[[Attempt], str] = outcome) -> dict[str, str]:
    """By name, printed."""
    with ThreadPoolExecutor(2) as pool:
        results = dict(zip((one.name for one in attempts), pool.map(tried, attempts), strict=True))
    for number, (name, result) in enumerate(results.items(), start=1):
        print(f"{number:3} {name:55} {result[:100]}")
    return results


def written_bytes() -> int:
    """What ended child processes have written to disks so far; a file system in memory is none."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock * 512


def attributes(*paths: Path) -> list[object]:
    """All that a change of a file leaves: times, owner, rights, links, extended attributes, flags."""
    found: list[object] = []
    for path in paths:
        facts, flags = os.stat(path), bytearray(8)
        with suppress(OSError), path.open("rb") as file:  # not every file system has flags, and a socket none
            fcntl.ioctl(file, FS_IOC_GETFLAGS, flags)
        extended = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        found.append((path, facts[:7], facts.st_mtime_ns, facts.st_ctime_ns, extended, bytes(flags)))
    return found


@pytest.fixture
def folders(tmp_path, monkeypatch):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    monkeypatch.setattr(python_tests.tempfile, "tempdir", str(inside))
    return inside, outside


def test_no_cheat_is_rewarded(folders):
    results = outcomes(CHEATS)
    assert len(results) == len(CHEATS) >= 110
    assert [name for name, result in results.items() if result == "rewarded"] == []
    assert [one.name for one in CHEATS if why_one_process("", one.tests)] == []


@pytest.mark.parametrize(
    ("sandbox", "kind"),
    [
        ("Bubblewrap, Landlock and seccomp", "python"),
        ("Landlock and seccomp", "python"),
        ("Bubblewrap, Landlock and seccomp", "function"),
        pytest.param("Landlock and seccomp", "function", marks=pytest.mark.full),
        *(pytest.param(name, kind, marks=pytest.mark.full) for name in CHANGES for kind in ("python", "function")),
    ],
)
def test_no_escape_is_rewarded_or_leaves_anything_behind(folders, monkeypatch, sandbox, kind):
    inside, outside = folders
    tried = outcome if kind == "python" else outcome_of_function
    if sandbox.startswith("Bubblewrap"):
        if not bubblewrap(str(inside)):
            pytest.skip("Bubblewrap is not installed or cannot make namespaces here: apt-get install bubblewrap")
    else:
        monkeypatch.setenv(SWITCH, "0")
    if sandbox in CHANGES:
        monkeypatch.setattr(python_tests, "RUNNER", runner(sandbox, "python_runner"))
        monkeypatch.setattr(function_verifier, "PROGRAM", runner(sandbox, "function_process"))
    print(sandbox, kind)
    address = str(outside / "socket")
    bytes_before = written_bytes()
    before = child_pids()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server, subprocess.Popen(["sleep", "600"]) as victim:
        server.bind(address)
        server.setblocking(False)
        readable = Path(os.__file__)
        unchanged = attributes(outside, Path(address), readable, readable.parent)
        attempts = escapes(address, victim.pid, str(outside))
        results = outcomes(attempts, tried)
        refused = tried(Attempt("escape", "raw calls", raw_calls(os.__file__)))
        assert victim.poll() is None
        victim.kill()
        with pytest.raises(BlockingIOError):
            server.recv(10)
    assert len(results) == len(attempts) >= 120
    assert [name for name, result in results.items() if result == "rewarded"] == []
    assert [path.name for path in outside.iterdir()] == ["socket"]
    assert attributes(outside, Path(address), readable, readable.parent) == unchanged
    assert (refused, len(RAW_CALLS) >= 80) == ("rewarded", True)  # all of them were refused
    assert list(inside.iterdir()) == []
    assert not Path("/dev/shm/left").exists()
    assert written_bytes() - bytes_before < 2**20
    assert remaining(before) == {}


def test_without_bubblewrap_and_landlock_no_code_runs(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    monkeypatch.setattr(python_tests, "RUNNER", runner("Bubblewrap and seccomp", "python_runner"))
    with pytest.raises(Unscorable, match="not here"):
        passes("assert f(2) == 4", "def f(x): return x * x", seconds=10)
