"""What tests and code can give each other in two processes, and which tests run in one."""

from __future__ import annotations

import pytest

from workers.verifiers.children.child_server import Incorrect, Unscorable
from workers.verifiers.python.python_tests import passes
from workers.verifiers.python.uses import why_one_process

ACCOUNT = """
from dataclasses import dataclass
class TooPoor(Exception):
    def __init__(self, missing):
        super().__init__(f"{missing} more are needed")
        self.missing = missing
@dataclass
class Account:
    balance: int = 0
    def draw(self, amount):
        if amount > self.balance:
            raise TooPoor(amount - self.balance)
        self.balance -= amount
        return self
    def __len__(self):
        return self.balance
    def __getitem__(self, n):
        return list(range(self.balance))[n]
    def __add__(self, other):
        return Account(self.balance + other.balance)
    def __str__(self):
        return f"<{self.balance}>"
"""
POOR = """
import unittest
class Poor(unittest.TestCase):
    def test_draw(self):
        with self.assertRaises(TooPoor) as caught:
            Account(3).draw(5)
        self.assertEqual(caught.exception.missing, 2)
        self.assertEqual(str(caught.exception), "2 more are needed")
"""
NUMPY = "import numpy as np\ndef f(x): return np.array(x) * 2\ndef total(x): return np.sum(x)"


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("def f(x): return x", "for one in (1, 2**70, -1.5, 'é', b'a', None, (1, [2]), {1, 2}, {'a': (1,)}, 1j, ..., range(3)):\n    assert f(one) == one"),
        ("def f(x): return x", "from decimal import Decimal\nfrom fractions import Fraction\nassert f(Decimal('1.10')) == Decimal('1.1') and f(Fraction(1, 3)) * 3 == 1"),
        ("def f(x): return x", "from datetime import *\nnow = datetime(2026, 1, 2, 3, tzinfo=timezone.utc)\nassert f(now) == now and f(now - now) == timedelta(0) and f(now.date()) == date(2026, 1, 2)"),
        ("from collections import *\ndef f(x): return Counter(x)", "assert f('aab') == {'a': 2, 'b': 1} and f('aab').most_common(1) == [('a', 2)]"),
        ("from collections import *\ndef f(x):\n    d = defaultdict(list)\n    d[x].append(1)\n    return d", "assert f(2) == {2: [1]} and f(2)[3] == []"),
        ("def f(x): x.sort(); x.append([x[0]])", "x = [3, 1]\nassert f(x) is None and x == [1, 3, [1]]"),
        ("def f(x): x['a'].append(2); return x", "x = {'a': [1]}\ny = f(x)\nassert y is x and x == {'a': [1, 2]}"),
        ("def f(x): return [x, x]", "a, b = f([1])\nassert a is b"),
        ("def f(x):\n    yield from range(x)", "assert list(f(3)) == [0, 1, 2]\nit = f(1)\nassert next(it) == 0 and next(it, 'end') == 'end'"),
        ("def f(xs): return sum(xs)", "assert f(n for n in range(4)) == 6"),
        ("def f(x): raise ValueError('no')", "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n    assert False"),
        ("def f(x): return ValueError('no')", "assert isinstance(f(1), ValueError) and f(1).args == ('no',)"),
        ("def f(x): print('a', x)", "import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as out:\n    f(2)\nassert out.getvalue() == 'a 2\\n'"),
        ("def f(path): return open(path).read()", "open('a.txt', 'w').write('text')\nassert f('a.txt') == 'text'"),
        ("import math\ndef f(x): return math.sqrt(x)", "assert math.isclose(f(2), 2 ** 0.5)"),
        ("def sum(a, b): return a - b", "assert sum(5, 3) == 2"),
        ("from __future__ import annotations\nfrom typing import List\ndef f(x: List[int]) -> Nothing: return 1", "assert f([]) == 1"),
        ("def f(n): return 0 if n == 0 else 1 + f(n - 1)", "assert f(950) == 950"),
        (NUMPY, "import numpy as np\nassert f([1, 2]).tolist() == [2, 4]\nnp.testing.assert_array_equal(f([[1]]), np.array([[2]]))\nassert total([1, 2]) == 3 and f([1]).dtype == np.int64"),
        ("def f(a): a *= 2", "import numpy as np\na = np.ones(2)\nf(a)\nassert a.tolist() == [2, 2]"),
        ("def f(x): return x", "class TestF:\n    def setup_method(self):\n        self.x = 2\n    def test_f(self):\n        assert f(self.x) == 2"),
        ("def f(x): return x * x", "import pytest\n@pytest.mark.parametrize('x, y', [(2, 4), (3, 9)])\ndef test_f(x, y):\n    assert f(x) == y\ndef test_error():\n    with pytest.raises(TypeError):\n        f('a')\ndef test_near():\n    assert f(0.1) == pytest.approx(0.01)"),
        ("def f(x): return x * x", "def check(candidate):\n    assert candidate(2) == 4\ncheck(f)"),
        ("def f(x): return x * x", "if f(2) != 4:\n    raise ValueError"),
        ("class Solution:\n    def add(self, a, b): return a + b", "def check(candidate):\n    assert candidate(a=1, b=2) == 3\ncheck(Solution().add)\ns = Solution()\nassert Solution().add(1, 2) == s.add(0, 3) == 3"),
        ("def f(x): return x.keys()", "assert f({'a': 1}) == {'a'} and list(f({2: 3})) == [2]"),
        ("import itertools\ndef f(): return itertools.count()", "assert next(f()) == 0 and next(zip(f(), 'ab')) == (0, 'a')"),
        ("class Bad(ValueError):\n    def __init__(self, size):\n        super().__init__(size)\n        self.size = size\ndef f(x): raise Bad(x)", "try:\n    f(3)\nexcept Bad as error:\n    assert error.size == 3 and isinstance(error, ValueError)\nelse:\n    assert False"),
    ],
)  # fmt: skip
def test_plain_values_pass_between_two_processes(code, tests):
    assert why_one_process("", tests) == ""
    assert passes(tests, code, seconds=10)


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("from collections import *\nP = namedtuple('P', 'x y')\ndef f(x): return P(x, 1)", "assert f(2) == (2, 1) and f(2).y == 1"),
        ("def f(g, x): return [g(one) for one in x]", "assert f(lambda n: n + 1, [1, 2]) == [2, 3] and f(str.upper, 'ab') == ['A', 'B']"),
        ("def f(x): return lambda y: x + y", "assert f(2)(3) == 5"),
        (ACCOUNT, "a = Account(3)\nassert a.draw(1).balance == 2 and a.balance == 2\na.balance = 9\nassert len(a) == 9 and a[3] == 3 and str(a + a) == '<18>' and f'{a}' == '<9>'"),
        (ACCOUNT, "assert isinstance(Account(1), Account) and not isinstance(3, Account) and hasattr(Account(1), 'draw')"),
        (ACCOUNT, POOR),
        ("def f(node):\n    node.next.value += 1\n    return node.next.value", "class Node:\n    def __init__(self, value, next=None): self.value, self.next = value, next\nn = Node(1, Node(5))\nassert f(n) == 6 and n.next.value == 6"),
        ("def f(file): file.write('a'); return file.getvalue()", "import io\nassert f(io.StringIO()) == 'a'"),
        ("import re\ndef f(p): return p.findall('a1b2')", "import re\nassert f(re.compile('[0-9]')) == ['1', '2']"),
        ("from enum import Enum\nclass C(Enum):\n    RED = 1\ndef f(x): return C.RED", "assert f(1) is C.RED and f(1) == C.RED and f(1).name == 'RED'"),
        ("async def f(x): return x + 1", "import asyncio\nassert asyncio.run(f(1)) == 2\nasync def test_f():\n    assert await f(2) == 3\n    assert await asyncio.gather(f(3), f(4)) == [4, 5]"),
        ("import asyncio\nasync def f(x):\n    await asyncio.sleep(0.01)\n    yield x", "async def test_f():\n    assert [one async for one in f(2)] == [2]"),
        ("async def f(x): return x", "import unittest\nclass A(unittest.IsolatedAsyncioTestCase):\n    async def test_f(self):\n        self.assertEqual(await f(1), 1)"),
        ("import sys\ndef f(): print(int(input()) + int(sys.stdin.readline()))", "import io, sys, contextlib\nsys.stdin = io.StringIO('1\\n2\\n')\nwith contextlib.redirect_stdout(io.StringIO()) as out:\n    f()\nassert out.getvalue() == '3\\n'"),
        ("def f(): return input()", "from unittest.mock import patch\nwith patch('builtins.input', return_value='4'):\n    assert f() == '4'"),
    ],
)  # fmt: skip
def test_tests_that_need_objects_run_in_the_process_of_the_code(code, tests):
    assert why_one_process("", tests)
    assert passes(tests, code, seconds=10)


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("def check(candidate):\n    assert candidate(2) == 4", "check(candidate) is never called"),
        ("assert True", "its tests did not use the code"),
        ("f(2)", "its tests ran no assertion"),
        ("def test_f():\n    assert f(2) == 4\n    yield", "test_f is a generator"),
        ("def test_f(tmp_path):\n    assert f(2) == 4", "test_f needs tmp_path: fixtures are not run"),
        ("import unittest\nraise unittest.SkipTest('later')", "its tests skip themselves (later)"),
        ("import unittest\nclass A(unittest.TestCase):\n    @unittest.skip('later')\n    def test_f(self):\n        self.assertEqual(f(2), 4)", "its tests are skipped (later)"),
        ("import pytest\n@pytest.mark.skip\ndef test_f():\n    assert f(2) == 4", "test_f is marked skip"),
        ("class TestF:\n    def __init__(self): pass\n    def test_f(self):\n        assert f(2) == 4", "class TestF has __init__"),
        ("assert f(object()) == 4", "its tests pass an object of object to the code"),
    ],
)  # fmt: skip
def test_tests_that_do_not_run_are_unscorable(tests, reason):
    with pytest.raises(Unscorable) as caught:
        passes(tests, "def f(x): return x * x", seconds=10)
    assert str(caught.value).startswith(reason)


def test_a_row_of_pytest_that_fails_is_incorrect():
    tests = "import pytest\n@pytest.mark.parametrize('x', [2, 3])\ndef test_f(x):\n    assert f(x) == 4"
    with pytest.raises(Incorrect):
        passes(tests, "def f(x): return x * x", seconds=10)


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("assert Total([1, 2]) == 3 and len(Parts('ab')) == 2", ""),  # capitalized functions, as MBPP has
        ("assert longest([Pair(5, 24), Pair(15, 25)], 2) == 1", "use objects of the class Pair"),
        ("assert Vector(1, 2) + Vector(3, 4) == Vector(4, 6)", "use objects of the class Vector"),
        ("stack = Stack()\nassert stack.pop() is None", "use objects of the class Stack"),
        ("def check(candidate):\n    assert candidate(lambda x: x) == 1\ncheck(f)", "pass a function to the code"),
        ("assert sorted(f([3, 1]), key=lambda x: -x) == [3, 1]", ""),
        ("def test_f():\n    head = f([1, 2])\n    assert head.next.val == 2", "use head.next"),
        ("a, b = f(2)\nassert sorted(f(2))[0].bit_count() == 3 and [*a][0].children == 1", ""),
        ("class Solution: pass\ns = Solution()\nassert s.add(1, 2) == 3", ""),
        ("assert len(f(2)) == 3", ""),
        ("# one process\nassert len(f(2)) == 3", "say so"),
        ("class Wrong(Exception): pass\ntry:\n    f(2)\nexcept Wrong:\n    assert True", ""),
        ("import pytest\nwith pytest.raises(TooPoor):\n    draw(5)", ""),
    ],
)
def test_the_text_of_the_tests_decides_where_they_run(tests, reason):
    assert why_one_process("", tests) == reason


def test_failure_names_the_class_of_an_object_that_tests_cannot_see():
    with pytest.raises(Incorrect, match="the code returned an object of Node: its tests compare plain values alone"):
        passes("assert f(2) == 4", "class Node: pass\ndef f(x): return Node()", seconds=10)


def test_partial_credit_counts_in_one_process_too():
    tests = "assert 1 + 1 == 2\na = Account(3)\nassert a.balance == 3\nassert len(a) == 4"
    share, reason = passes(tests, ACCOUNT, seconds=10, kind="python_partial")
    assert (share, reason[:19]) == (0.5, "1 of 2 assertions; ")
