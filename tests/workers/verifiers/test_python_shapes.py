"""Comparisons of NumPy and pytest in tests: an answer of another shape, an empty one above all, equals no reference.

In this process, because isolation is not what is tested: `f` returns the value, as the code's process would send it.
"""

from __future__ import annotations

import ast

import numpy as np
import pandas as pd
import pytest

from tests.support.marks import in_full
from tests.workers.verifiers.test_python_references import is_correct
from workers.verifiers.python.degenerate.reference_check import try_references
from workers.verifiers.python.forms import Tests

MODULES = ("collections", "functools", "itertools", "math", "operator", "re", "unittest", "pytest")
HEAD = "".join(f"import {name}\n" for name in MODULES) + "import numpy as np\nimport pandas as pd\n"
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

# One a line, `\n` for its line breaks: further forms in which plain Python pays for an answer that is no answer.
MORE = r"""
assert all(map(math.isclose, f(2), [4, 5]))
assert all(map(operator.eq, [4, 5], f(2)))
assert not any(map(operator.ne, f(2), [4, 5]))
assert all(a == b for a, b in zip(f(2), np.array([4, 5])))
assert all(a == b for a, b in zip(f(2), range(4, 6)))
assert all(a == b for a, b in zip(*[f(2), [4, 5]]))
assert all(a == b for (a, b) in itertools.zip_longest(f(2), [4, 5]))
assert sum(abs(a - b) for a, b in zip(f(2), [4, 5])) < 1e-6
assert [a for a, b in zip(f(2), [4, 5]) if a != b] == []
assert max([abs(a - b) for a, b in zip(f(2), [4, 5])], default=0) < 1e-6
assert all(itertools.starmap(math.isclose, zip(f(2), [4, 5])))
assert dict(zip(f(2), [4, 5])).items() <= {4: 4, 5: 5}.items()
assert np.equal(f(2), 4).all()
assert not np.not_equal(f(2), 4).any()
assert np.less(f(2), 5).all()
assert np.abs(np.subtract(f(2), 4)).sum() < 1e-6
assert np.greater_equal(f(2), 4).all()
assert np.allclose(np.subtract(f(2), 4), 0)
assert f(2) in [pytest.approx(4)]
assert {"a": f(2)} == {"a": pytest.approx(4)}
assert [f(2)] == [pytest.approx(4)]
assert (f(2), 1) == (pytest.approx(4), 1)
assert f(2) == [pytest.approx(4)]
assert f(2) == {"a": pytest.approx(4)}
assert f(2) == pytest.approx({"a": 4})
assert pytest.approx({"a": 4}) == f(2)
assert f(2) == pytest.approx([4])
assert not f(2) != pytest.approx(4)
np.testing.assert_equal({"a": f(2)}, {"a": 4})
np.testing.assert_equal(f(2), {"a": 4})
np.testing.assert_allclose(f(2), [4, 5])
np.testing.assert_almost_equal([f(2)], [4])
np.testing.assert_array_almost_equal(f(2), [4, 5], decimal=3)
np.testing.assert_array_less(f(2), [5, 6])
assert (pd.Series(f(2)) == 4).all()
assert pd.Series(f(2)).eq(4).all()
assert not pd.Series(f(2)).ne(4).any()
assert pd.Series(f(2)).sub(4).abs().sum() < 1e-6
assert (pd.Series(f(2)) - pd.Series([4, 5])).abs().sum() < 1e-6
assert pd.Series(f(2)).sub(pd.Series([4, 5])).abs().sum() < 1e-6
assert pd.DataFrame(f(2)).eq(4).all().all()
assert (pd.DataFrame({"a": f(2)}) == 4).all().all()
pd.testing.assert_series_equal(pd.Series(f(2)), pd.Series([4, 5]))
pd.testing.assert_frame_equal(pd.DataFrame({"a": f(2)}), pd.DataFrame({"a": [4, 5]}))
assert np.allclose(pd.Series(f(2)), 4)
assert math.isclose(sum(map(abs, map(operator.sub, f(2), [4, 5]))), 0)
assert np.linalg.norm(np.array(f(2)) - 4) < 1e-6
assert np.max(np.abs(np.array(f(2)) - 4), initial=0) < 1e-6
assert abs(np.sum(f(2)) - 9) < 1e-6
assert np.count_nonzero(np.asarray(f(2)) != 4) == 0
assert (np.asarray(f(2)) / 4 == 1).all()
assert (np.round(f(2), 3) == 4).all()
assert 3 < np.asarray(f(2)) < 5
assert math.isclose(f(2), 4)
assert math.dist(f(2), [4, 5]) < 1e-6
assert functools.reduce(operator.and_, map(operator.eq, f(2), [4, 5]), True)
assert all(np.isclose(f(2), 4))
assert np.isclose(f(2), 4).min(initial=True)
r = f(2)\nfor i, e in enumerate([4, 5]): assert np.isclose(r[i:i+1], e).all()
class T(unittest.TestCase):\n    def test(self): self.assertEqual(f(2), pytest.approx(4))
class T(unittest.TestCase):\n    def test(self): self.assertTrue((np.array(f(2)) == 4).all())
class T(unittest.TestCase):\n    def test(self): self.assertAlmostEqual(f(2), 4)
class T(unittest.TestCase):\n    def test(self): self.assertIn(f(2), [pytest.approx(4)])
class T(unittest.TestCase):\n    def test(self): self.assertListEqual([f(2)], [pytest.approx(4)])
class T(unittest.TestCase):\n    def test(self): self.assertFalse(np.any(f(2) - np.array(4)))
class T(unittest.TestCase):\n    def test(self):\n        for a, b in zip(f(2), [4, 5]): self.assertAlmostEqual(a, b)
@pytest.mark.parametrize("x,e", [(2, 4)])\ndef test(x, e): assert np.allclose(f(x), e)
@pytest.mark.parametrize("x,e", [(2, [4, 5])])\ndef test(x, e): assert all(a == b for a, b in zip(f(x), e))
@pytest.mark.parametrize("x,e", [(2, 4)])\ndef test(x, e): assert f(x) == pytest.approx(e)
e = {"x": 4}\nfor k, v in e.items(): assert np.allclose(f(2), v)
def near(a, b): return abs(a - b) < 1e-6\nassert all(map(near, f(2), [4, 5]))
def near(a, b): return all(abs(x - y) < 1e-6 for x, y in zip(a, b))\nassert near(f(2), [4, 5])
""".strip().splitlines()

# Plain Python pays for these too, and so do we: the import names what they pay for.
PLAIN = r"""
assert set(f(2)) <= {4, 5}
assert set(f(2)).issubset({4, 5})
assert {4, 5}.issuperset(f(2))
assert not set(f(2)) - {4, 5}
assert f(2) <= {4, 5}
assert f(2).issubset({4, 5})
assert all(x in [4, 5] for x in f(2))
assert not any(x != 4 for x in f(2))
for i, x in enumerate(f(2)):\n    assert x == [4, 5][i]\nassert True
r = f(2)\nfor i in range(len(r)):\n    assert r[i] == [4, 5][i]\nassert True
assert collections.Counter(f(2)) <= collections.Counter([4, 5])
assert not collections.Counter(f(2)) - collections.Counter([4, 5])
assert f(2) in "4"
assert "4".startswith(f(2))
assert re.match(f(2), "4")
assert f(2).items() <= {"a": 4}.items()
assert all({"a": 4}[k] == v for k, v in f(2).items())
assert np.isin(f(2), [4, 5]).all()
assert np.setdiff1d(f(2), [4, 5]).size == 0
assert pd.Series(f(2)).isin([4, 5]).all()
assert not abs(f(2) - 4) > 1e-6
assert not f(2) < 4 and not f(2) > 4
assert f(2) > 3
assert f(2)
assert not f(2)
assert min(f(2), default=4) == 4
assert abs(sum(f(2))) < 10
assert sorted(f(2)) == f(2)
assert f(2) == sorted(set(f(2)))
assert 4 in f(2)
assert next(iter(f(2)), 4) == 4
assert f(2) <= (4, 5)
x = [4]\nf(x)\nassert all(one == 16 for one in x)
assert all(f(n) == f(n) for n in range(3))
def near(a, b): return all(abs(a[i] - b[i]) < 1e-6 for i in range(len(a)))\nassert near(f(2), [4, 5])
""".strip().splitlines()


def holds(tests: str, value: object) -> bool:
    try:
        return Tests(ast.parse(HEAD + tests.replace("\\n", "\n"))).run({"f": lambda *_: value}) > 0
    except Exception:
        return False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tests", COMPARISONS)
def test_empty_answer_is_equal_to_no_reference(tests):
    assert [value for value in EMPTY if holds(tests, value)] == []
    assert holds(tests, np.array([[1.0], [2.0]])) or holds(tests, np.array([[4.0, 5.0]])) or any(
        holds(tests, value) for value in (4, [4, 5], np.array([4, 4]), np.array([4.0]))
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_no_degenerate_answer_is_equal_to_a_reference_in_further_forms():
    """Where the tests name one number, an array of it is an answer; NaN, True and infinity where they say so."""
    answers = [*EMPTY, {}, set(), "", {"a": np.array([])}, [np.array([])], None, [float("nan")], object()]
    paid = [(tests, answer) for tests in MORE for answer in answers if holds(tests, answer)]
    assert paid == []
    assert [tests for tests in MORE if holds(tests, iter(()))] == []
    of_both = [tests for tests in MORE if "[4, 5]" in tests]
    assert [tests for tests in of_both if holds(tests, [4])] == []
    right = (4, [4, 4], [4, 5], np.array([4, 4]), {"a": 4}, pd.Series([4, 4]), 4.0, [4], {4: 4}, (4,))
    assert [tests for tests in MORE if not any(holds(tests, value) for value in right)] == []


@pytest.mark.parametrize("forms", [PLAIN[:4], *in_full(PLAIN[4:])])
def test_what_plain_python_pays_for_is_named_at_the_import(forms):
    names = [*MODULES, "numpy as np", "pandas as pd"]
    heads = ["".join(f"import {one}\n" for one in names if f"{one.split()[-1]}." in tests) for tests in forms]
    references = [head + tests.replace("\\n", "\n") for head, tests in zip(heads, forms, strict=True)]
    trials = [*try_references(references, 60.0)]
    unnamed = {*range(len(forms))} - {place for place, _ in trials[-1].rewarded}
    assert [forms[place] for place in unnamed] == []


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
