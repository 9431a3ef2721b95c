"""The python verifier: code that passes its tests, and code that wants something else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.children.child_server import Incorrect, Unscorable
from workers.verifiers.python import sandbox
from workers.verifiers.python.python_tests import passes
from workers.verifiers.scoring.service import Verifier

TESTS = "assert f(2) == 4"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module", autouse=True)
def _kernel_has_the_fences():
    try:
        passes(TESTS, SQUARE, seconds=20)
    except Unscorable as error:
        pytest.skip(f"no code can be run behind fences here: {error}")


def outcome(code: str, tests: str = TESTS, seconds: int = 10) -> str:
    """ "right", or why not. Ten seconds: the machine of the tests may be busy."""
    try:
        return "right" if passes(tests, code, seconds=seconds) else "?"
    except (Incorrect, Unscorable) as error:
        return f"{type(error).__name__.lower()}: {error}"


SQUARE, FIVE = "def f(x): return x * x", "def f(x): return 5"
AS_FUNCTION = """
def test_f():
    assert f(2) == 4, "no"
"""
AS_CLASS = """
import unittest
class Squares(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f(2), 4)
"""
IN_A_FILE = """
def f(x):
    open("notes", "w").write(str(x * x))
    return int(open("notes").read())
"""
IN_A_THREAD = """
import threading
def f(x):
    found = []
    thread = threading.Thread(target=found.append, args=(x * x,))
    thread.start()
    thread.join()
    return found[0]
"""
IN_A_TEMPORARY_FILE = """
import tempfile
def f(x):
    with tempfile.TemporaryFile() as file:
        return file.write(b"four")
"""


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        (SQUARE, TESTS),
        (SQUARE, AS_FUNCTION),
        (SQUARE, AS_CLASS),
        ("import numpy\ndef f(x): return int(numpy.square(x))", TESTS),
        (IN_A_FILE, TESTS),
        (IN_A_THREAD, TESTS),
        (IN_A_TEMPORARY_FILE, TESTS),
        ("print('noise' * 100_000)\n" + SQUARE, TESTS),
    ],
)
def test_code_that_passes_is_right(code, tests):
    assert outcome(code, tests) == "right"


@pytest.mark.parametrize(
    ("code", "tests", "told"),
    [
        (FIVE, TESTS, "incorrect: AssertionError (line 1 of the tests)"),
        (FIVE, AS_FUNCTION, "incorrect: AssertionError (line 3 of the tests): no"),
        (FIVE, AS_CLASS, "incorrect: Failed: AssertionError: 5 != 4"),
        ("def g(x): return 4", TESTS, "incorrect: NameError (line 1 of the tests): name 'f' is not defined"),
        ("def f(x:", TESTS, "incorrect: SyntaxError"),
        ("x = 'a' * 10**10\ndef f(x): return 4", TESTS, "incorrect: MemoryError (line 1 of the answer)"),
        ("def f(x): return f(x)", TESTS, "incorrect: RecursionError"),
    ],
)
def test_code_that_fails_is_wrong_and_says_where(code, tests, told):
    assert outcome(code, tests).startswith(told)


@pytest.mark.parametrize("deed", ["open('/proc/self/environ').read()", "__import__('os').listdir('/')"])
def test_folders_of_the_system_are_closed(deed):
    """Landlock closes them; what Bubblewrap alone shows of them is its own."""
    told = outcome(f"def f(x):\n    {deed}\n    return 4")
    assert re.match(r"incorrect: (PermissionError|FileNotFoundError) \(line 2 of the answer\)", told)


def test_environment_is_clean(monkeypatch):
    monkeypatch.setenv("HACRL_SECRET_KEY", "hidden")
    told = outcome("import os\ndef f(x): raise ValueError(sorted(os.environ))")
    assert "SECRET" not in told
    assert "'HOME'" in told


def test_endless_computation_is_wrong_and_endless_waiting_unscorable():
    assert outcome("while True: pass") == "incorrect: its tests took more than 2 s of processor time"
    with pytest.raises(Unscorable) as caught:
        passes(TESTS, "import time\ntime.sleep(1000)", seconds=1)
    assert caught.value.is_timeout


def test_order_of_sets_is_the_same_every_time():
    assert len({outcome("def f(x): raise ValueError({'a', 'b', 'c', 'd'})") for _ in range(4)}) == 1


def test_whole_verifier_scores_blocks_of_code():
    block = "Here:\n```python\ndef f(x): return x * x\n```\nDone."
    with Verifier("python", processes=2) as verifier:
        found = verifier.score(
            [block, block.replace("* x", "+ 1"), "no code", "```python\ndef f(x): return 4"], [TESTS] * 4
        )
    assert [verdict.reward for verdict in found] == [1.0, 0.0, 0.0, 0.0]
    assert found[1].reason == "AssertionError (line 1 of the tests)"
    assert found[3].reason == "no closed block of Python code"


def test_machine_without_fences_runs_no_code(monkeypatch):
    monkeypatch.setattr(sandbox.platform, "machine", lambda: "vax")
    with pytest.raises(sandbox.SandboxUnavailable, match="no system call filter for vax"):
        sandbox._filter_calls(None)  # type: ignore[arg-type] # refused before anything is called
    child = Verifier("python")
    monkeypatch.setattr("workers.verifiers.children.line_process.sys.executable", "/bin/false")
    with child, pytest.raises(VerifierError, match="did not start"):
        child.score(["```\n1\n```"], [TESTS])


def test_limits_that_are_lower_already_stay():
    program = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (30, 30))\n"
        "from workers.verifiers.python.python_tests import passes\n"
        "from workers.verifiers.children.resource_limits import lower, lower_for_now\n"
        "print(passes('assert f(2) == 4', 'def f(x): return x * x', seconds=20))\n"
        "lower_for_now(resource.RLIMIT_CPU, 50)\n"
        "lower(resource.RLIMIT_FSIZE, 2**30)\n"
        "print(resource.getrlimit(resource.RLIMIT_CPU), resource.getrlimit(resource.RLIMIT_FSIZE))\n"
        "lower(resource.RLIMIT_CPU, 10, spare=5)\n"
        "lower_for_now(resource.RLIMIT_CPU, 12)\n"
        "print(resource.getrlimit(resource.RLIMIT_CPU))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["True", "(30, 30) (1048576, 1048576)", "(12, 15)"], done.stderr
