"""Reference answers of HumanEval's and MBPP's form, and tests that reward anything."""

from __future__ import annotations

import pytest

from workers.verifiers.children.child_server import Incorrect
from workers.verifiers.python.python_tests import passes, python_verdict, unclear_tests
from workers.verifiers.python.reference import reference_of_row, split_reference

PROMPT = '''from typing import List
import math


def poly(xs: list, x: float):
    """
    Evaluates polynomial with coefficients xs at point x.
    """
    return sum([coeff * math.pow(x, i) for i, coeff in enumerate(xs)])


def find_zero(xs: List[float]):
    """ xs are coefficients of a polynomial.
    find_zero finds x such that poly(x) = 0.
    """
'''
TEST = """

METADATA = {}


def check(candidate):
    for a in range(1, 4):
        assert math.fabs(poly([-a, 1.0], candidate([-a, 1.0]))) < 1e-4
"""
HUMANEVAL = {"task_id": "HumanEval/0", "prompt": PROMPT, "test": TEST, "entry_point": "find_zero"}
MBPP = {
    "text": "Write a function to add.",
    "test_list": ["assert add(2, 3) == 5", "assert add(N, N) == 2 * N"],
    "test_setup_code": "N = 7",
    "test_imports": ["import math"],
}
TEST_ROOT = "def check(candidate):\n    assert candidate(4) == 2"
ADD = "def add(a, b): return a + b"


def is_correct(code: str, gold: str) -> bool:
    try:
        return passes(gold, code, seconds=10)
    except Incorrect:
        return False


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("    return -xs[0] / xs[1]", True),
        ("def find_zero(xs: List[float]):\n    return -xs[0] / xs[1]", True),
        ("def find_zero(xs):\n    return [x for x in (1, 2, 3) if poly(xs, x) == 0][0]", True),
        ("    return 1", False),
        ("pass", False),
        ("def poly(xs, x): return 0\ndef find_zero(xs): return 1", False),
        ("def check(candidate): pass", False),
    ],
)
def test_humanevals_form_runs_with_its_prompt(code, expected):
    gold = reference_of_row(HUMANEVAL, "prompt", "test")
    assert gold.endswith("\n\ncheck(find_zero)")
    assert split_reference(gold)[0] == PROMPT
    assert unclear_tests(gold) == ""
    assert is_correct(code, gold) is expected


def test_function_whose_head_imports_is_still_to_be_written():
    prompt = 'def root(x):\n    import math\n    """The root of x."""\n'
    gold = reference_of_row({"prompt": prompt, "test": TEST_ROOT, "entry_point": "root"}, "prompt", "test")
    assert is_correct("    return math.sqrt(x)", gold)


def test_the_body_of_a_prompt_reaches_the_verifier():
    gold = reference_of_row(HUMANEVAL, "prompt", "test")
    assert python_verdict("```python\n    return -xs[0] / xs[1]\n```", gold) == ("    return -xs[0] / xs[1]", gold)


def test_mbpps_form_is_its_assertions_after_its_imports_and_setup():
    gold = reference_of_row(MBPP, "text", "test_list")
    assert gold == "import math\nN = 7\nassert add(2, 3) == 5\nassert add(N, N) == 2 * N"
    assert is_correct(ADD, gold)
    assert not is_correct("def add(a, b): return 5", gold)
    assert not is_correct("pass", gold)


@pytest.mark.parametrize("tests", ["", [], ["", " "], None, [1]])
def test_a_row_without_tests_is_refused(tests):
    with pytest.raises(ValueError, match="tests"):
        reference_of_row({"test_list": tests}, "text", "test_list")
