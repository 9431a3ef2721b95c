"""Comparisons of NumPy and pytest in tests: an answer of another shape, an empty one above all, equals no reference.

In this process, because isolation is not what is tested: `f` returns the value, as the code's process would send it.
"""

from __future__ import annotations

import ast

import numpy as np
import pytest

from tests.workers.verifiers.test_python_references import is_correct
from workers.verifiers.python.forms import Tests

HEAD = "import math\nimport numpy as np\nimport pytest\n"
EMPTY = [[], (), np.array([]), np.zeros((0, 1)), np.zeros((1, 0))]
# Each holds of at least one empty answer in plain Python.
COMPARISONS = [
    *("assert np.allclose(f(2), 4)", "assert np.allclose(4, f(2))", "assert np.isclose(f(2), 4).all()"),
    *(
        "assert (f(2) == 4).all()",
        "assert np.all(f(2) == 4)",
        "assert not (f(2) != 4).any()",
        "assert (f(2) < 5).all()",
    ),
    *("assert (np.array(f(2)) == np.array([4, 4])).all()", "assert np.allclose(f(2), np.array([[1.0], [2.0]]))"),
    *("assert f(2) == pytest.approx(4)", "assert pytest.approx(4) == f(2)", "assert np.allclose(a=f(2), b=4)"),
    *("assert f(2) == pytest.approx(np.array([4.0, 4.0]))", "assert np.array_equiv(f(2), 4)"),
    *("assert (abs(np.asarray(f(2)) - 4) < 1e-6).all()", "assert np.abs(np.asarray(f(2)) - 4).sum() < 1e-6"),
    *("assert np.linalg.norm(np.array(f(2)) - np.array([[4.0, 5.0]])) < 1e-6", "np.testing.assert_equal(f(2), 4)"),
    *("np.testing.assert_allclose(f(2), 4)", "np.testing.assert_array_equal(f(2), [4, 4])"),
    *("np.testing.assert_array_almost_equal(f(2), 4)", "np.testing.assert_array_less(f(2), 5)"),
    *("r, e = f(2), 4\nassert np.allclose(r, e)", "def same(a, b): return np.allclose(a, b)\nassert same(f(2), 4)"),
    *("from numpy import allclose as near\nassert near(f(2), 4)", "near = np.allclose\nassert near(f(2), 4)"),
    "import functools\nnear = functools.partial(np.allclose, atol=1)\nassert near(f(2), 4)",
    "def check(candidate):\n    assert np.allclose(candidate(2), 4)\ncheck(f)",
    "assert all(math.isclose(a, b) for a, b in zip(f(2), [4, 5]))",
    "assert all(a == b for a, b in zip([4, 5], f(2)))",
    "for a, b in zip(f(2), [4, 5]):\n    assert a == b\nassert True",
]


def holds(tests: str, value: object) -> bool:
    try:
        return Tests(ast.parse(HEAD + tests)).run({"f": lambda *_: value}) > 0
    except Exception:
        return False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tests", COMPARISONS)
def test_empty_answer_is_equal_to_no_reference(tests):
    assert [value for value in EMPTY if holds(tests, value)] == []
    assert holds(tests, np.array([[1.0], [2.0]])) or holds(tests, np.array([[4.0, 5.0]])) or any(
        holds(tests, value) for value in (4, [4, 5], np.array([4, 4]), np.array([4.0]))
    )  # fmt: skip


@pytest.mark.parametrize(
    "tests",
    [
        "np.testing.assert_allclose(f(2), [4, 4])",
        "assert (f(2) == np.array([4, 4])).all()",
        "assert f(2) == pytest.approx(np.array([4.0, 4.0]))",
    ],
)
def test_number_does_not_stand_for_an_array_of_the_reference(tests):
    assert not holds(tests, 4.0)
    assert holds(tests, np.array([4.0, 4.0]))


@pytest.mark.parametrize(
    ("tests", "value"),
    [
        ("assert np.allclose(f(2), 4) and (f(2) == 4).all() and f(2) == pytest.approx(4)", np.array([4.0, 4.0])),
        ("assert f(2) == pytest.approx(4) and np.isclose(f(2), 4) and np.allclose(f(2), np.float64(4))", 4.0),
        ("r = f(2)\nassert all(a <= b for a, b in zip(r, r[1:])) and len([*zip(r, [1, 2])]) == 2", [1, 2, 3]),
        ("x = f(2)\nassert np.allclose(x - x.mean(), [-0.5, 0.5]) and (x - 1 >= 0).all()", np.array([1.0, 2.0])),
        ("np.testing.assert_array_equal(f(2), np.array([]))\nassert (f(2) == np.array([])).all()", np.array([])),
        ("np.testing.assert_equal(f(2), {'a': [1, 2]})\nassert f(2) == {'a': [1, 2]}", {"a": [1, 2]}),
        ("assert f(2) == pytest.approx({'a': 0.3})", {"a": 0.1 + 0.2}),
        ("assert f(2).shape == (2, 2) and (f(2) - np.array([1, 2])).shape == (2, 2)", np.array([[1, 2], [3, 4]])),
        ("assert set(f(2)) - {'a'} == {'b'} and f(2) < 'b' and f(2) == 'ab'", "ab"),
        ("assert f(2) == None and 1 < 2 < 3", None),
    ],
)
def test_other_comparisons_are_as_they_were(tests, value):
    assert holds(tests, value)


ANY = """
class Account:
    def __init__(self, *args): pass
    def __getattr__(self, name): return Any()
class Any:
    def __eq__(self, other): return {equal}
    def __ne__(self, other): return False
    def __call__(self, *args): return self
"""


@pytest.mark.parametrize(
    ("tests", "equal"),
    [("a.balance == 3", "True"), ("not a.balance != 3", "True"), ("a.draw(2) == [1]", "type(other) is list")],
)
def test_object_that_equals_everything_is_equal_to_nothing_in_one_process_either(tests, equal):
    assert not is_correct(ANY.format(equal=equal), f"a = Account(3)\nassert {tests}")
