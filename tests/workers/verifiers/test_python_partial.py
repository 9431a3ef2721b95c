"""Partial credit of Python tests: the share of assertions that hold, and nothing for cheats."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.workers.verifiers.python_escapes import CHEATS, Attempt
from workers.agents.messages import GeneratedRollouts, Response
from workers.questions.dataset import Question
from workers.trainer.scoring import Scorer
from workers.trainer.stop_signals import StopFlag
from workers.verifiers.children.child_server import Incorrect, Unscorable
from workers.verifiers.python.python_tests import passes
from workers.verifiers.scoring.service import Verifier

SQUARE = "def f(x): return x * x"
DOUBLE = "def f(x): return 2 * x"  # 4 for 2, as the square
PLAIN = "assert f(2) == 4\nassert f(3) == 9\nassert f(4) == 16\nassert f(0) == 0"
CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\ncheck(f)"
FUNCTIONS = (
    "def test_a():\n    assert f(2) == 4\ndef test_b():\n    assert f(3) == 9\ndef test_c():\n    assert f(4) == 16"
)
CLASS = """
import unittest
class Squares(unittest.TestCase):
    def test_one(self):
        self.assertEqual(f(2), 4)
        self.assertEqual(f(3), 9)
    def test_two(self):
        with self.assertRaises(TypeError):
            f()
"""
LAST = "def test_z():\n    assert f(3) == 9"
LOOP = "for x in range(5):\n    assert f(x) == x * x\nassert f(2) == 4"


def reward(code: str, tests: str) -> float | str:
    try:
        found = passes(tests, code, seconds=8, kind="python_partial")
    except Incorrect:
        return 0.0
    except Unscorable as error:
        return f"unscorable: {error}"
    return found[0] if isinstance(found, tuple) else float(found)


@pytest.mark.parametrize(
    ("code", "tests", "expected"),
    [
        (SQUARE, PLAIN, 1.0),
        (DOUBLE, PLAIN, 0.5),  # f(2) and f(0)
        (DOUBLE, CHECK, 0.5),
        (DOUBLE, FUNCTIONS, 0.333333),
        (DOUBLE, CLASS, 0.666667),  # f(2), and the error of f()
        (SQUARE, CLASS, 1.0),
        (DOUBLE, LOOP, 0.5),  # an assertion in a loop is one, and holds if it never fails
        ("def f(x): return 5", PLAIN, 0.0),
        ("x = 1", PLAIN, 0.0),
        ("def f(x): raise ValueError", PLAIN, 0.0),
        # What holds without the code counts for nothing: 1 of 2, not 2 of 3.
        (DOUBLE, "assert 1 + 1 == 2\nassert f(2) == 4\nassert f(3) == 9", 0.5),
        # What the prompt's own helper decides is not the code's: 1 of 2, not 2 of 3.
        (DOUBLE, f"def half(x): return x / 2\n# --- tests ---\nassert half(4) == 2\n{PLAIN[:35]}", 0.5),
        # An error between two assertions ends the test; one at the top ends everything.
        (DOUBLE, "def test_a():\n    assert f(2) == 4\n    f(1)[0]\n    assert f(0) == 0\n" + LAST, 0.333333),
        (DOUBLE, "assert f(2) == 4\ny = f(1)[0]\nassert f(0) == 0\nassert f(3) == 9", 0.333333),
        # All assertions hold, and the tests fail: not everything.
        (DOUBLE, "assert f(2) == 4\nassert f(0) == 0\nf(1)[0]", 0.5),
        (DOUBLE, "if f(2) != 4: raise ValueError\nif f(3) != 9: raise ValueError", 0.5),
        # The last is reached by incorrect code alone, so it is none of those that can hold.
        (DOUBLE, "assert f(2) == 4\ntry:\n    f(3)\n    assert False\nexcept ValueError: pass\n" + LAST, 0.5),
    ],
)  # fmt: skip
def test_share_of_assertions_is_the_reward(code, tests, expected):
    assert reward(code, tests) == expected


@pytest.mark.parametrize(
    "code",
    [
        "import os\ndef f(x):\n    if x == 3: os._exit(0)\n    return x * x",
        "import sys\ndef f(x):\n    if x == 4: sys.exit()\n    return x * x + (x == 3)",
        "import time\ndef f(x):\n    if x == 3:\n        while True: pass\n    return x * x",
        "class Any:\n    def __eq__(self, other): return True\ndef f(x): return Any()",
        "import os\ndef f(x):\n    for n in range(3, 64 if x == 3 else 3):\n        try: os.write(n, b'{}\\n')\n"
        "        except OSError: pass\n    return x * x",
    ],
)  # fmt: skip
def test_code_that_breaks_off_or_pretends_earns_nothing(code):
    assert reward(code, PLAIN) == 0.0


@pytest.mark.full
def test_no_cheat_earns_a_part():
    def outcome(attempt: Attempt) -> float | str:
        return reward(attempt.code, attempt.tests)

    with ThreadPoolExecutor(2) as pool:
        results = dict(zip((one.name for one in CHEATS), pool.map(outcome, CHEATS), strict=True))
    # 5 is what one of the two tests expects: an honest half.
    assert results.pop("define one of two tests again") == 0.5
    assert {name: found for name, found in results.items() if isinstance(found, float) and found > 0} == {}


def test_real_valued_rewards_reach_the_step():
    texts = [f"```python\n{code}\n```" for code in (SQUARE, DOUBLE, "def f(x): return 5")] + ["no code"]
    responses = [Response(text, text, "stop", 2, 2, -1.0) for text in texts]
    with Verifier("python_partial", processes=2) as verifier:
        scorer = Scorer(verifier, StopFlag(), print)
        scores = scorer.score_step([Question("q", "?", PLAIN)], [GeneratedRollouts([responses], (0.0, 0.0))], 4)
        [verdict] = verifier.score(texts[1:2], [PLAIN])
    assert scores.rewards.tolist() == [[[1.0, 0.5, 0.0, 0.0]]]
    assert scores.is_correct.tolist() == [[[True, False, False, False]]]
    assert verdict.reason == "2 of 4 assertions; AssertionError (line 2 of the tests)"


def test_time_that_ends_while_assertions_are_counted_leaves_the_answer_unscorable():
    slow = "import time\ndef f(x):\n    time.sleep(0.7)\n    return 2 * x"
    with pytest.raises(Unscorable, match="did not end in 3 s"):
        passes(PLAIN, slow, seconds=3, kind="python_partial")
