"""Comparisons in tests demand equal shapes where NumPy and pytest broadcast: an empty answer would fit any reference.

`np.allclose([], 4)`, `(np.zeros((0, 1)) == [[1], [2]]).all()` and `np.array([]) == pytest.approx(4)` hold in plain
Python, so that a model learns to return nothing. The text of the tests is rewritten, and the code's own use of NumPy
stays as it is. A number that the tests state themselves may stand for every item of an answer that has items.
"""

from __future__ import annotations

import ast
import builtins
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_CALLED, _COMPARED, _CONTAINED, _PAIRED = "_hacrl_called", "_hacrl_compared", "_hacrl_contained", "_hacrl_paired"
_FUNCTIONS = {
    "allclose", "isclose", "array_equiv", "assert_allclose", "assert_almost_equal", "assert_approx_equal",
    "assert_array_almost_equal", "assert_array_almost_equal_nulp", "assert_array_equal", "assert_array_less",
    "assert_array_max_ulp", "assert_equal", "assert_close", "assertEqual", "assertIn", "assertListEqual",
    "assertSequenceEqual", "assertTupleEqual", "assertDictEqual",
}  # fmt: skip
# Of a module, or of an object of NumPy or pandas.
_DIFFERENCES = {"sub", "subtract"}
_METHODS = _DIFFERENCES | {
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "eq", "ne", "lt", "le", "gt", "ge"
}  # fmt: skip
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Sub: operator.sub,
}  # fmt: skip
_SINGLE = (int, float, complex, str, bytes, bool, type(None))
_PLAIN = (*_SINGLE, list, tuple, dict, set, frozenset)
_BY_NAME = {function.__name__: function for function in _OPERATORS.values()}


def with_shapes(tree: ast.Module) -> ast.Module:
    """The tests, which check the shapes of what they compare with the code's values. tree: is changed."""
    return ast.fix_missing_locations(_Comparisons(tree).visit(tree))


class _Comparisons(ast.NodeTransformer):
    """Rewrites comparisons with what may come from the code."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = [*ast.walk(tree)]
        imported = [one for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for one in node.names]
        self._own = {(one.asname or one.name).partition(".")[0] for one in imported} | {*vars(builtins)}
        aliases = {one.asname for one in imported if one.asname and one.name in _FUNCTIONS}
        aliases |= {name for node in nodes if isinstance(node, ast.Assign) for name in _other_names(node)}
        self._functions = _FUNCTIONS | aliases
        # Names that only get what the tests state themselves, found from below: each may rest on the ones before.
        values = [*_assignments(nodes)]
        names = {name for name, _ in values}
        while more := {
            name
            for name in names - self._own
            if all(value is not None and self._is_own(value) for one, value in values if one == name)
        }:
            self._own |= more

    def _is_own(self, node: ast.AST) -> bool:
        """Whether nothing of it is the code's."""
        return all(not isinstance(one, ast.Name) or one.id in self._own for one in ast.walk(node))

    def visit_Call(self, node: ast.Call) -> ast.Call:
        is_own = [*map(self._is_own, node.args)]
        name = _last_name(node.func)
        has_own_keywords = all(self._is_own(one.value) for one in node.keywords)
        is_method = isinstance(node.func, ast.Attribute) and name in _METHODS
        is_own = [not is_method or self._is_own(node.func), *is_own]
        pairs = _pairs_of(node)
        is_function = name == "map"
        others = [place for place, one in enumerate(pairs) if place >= is_function and not self._is_own(one)]
        self.generic_visit(node)
        if (name in self._functions or is_method) and not (all(is_own) and has_own_keywords):
            return ast.Call(_name(_CALLED), [node.func, _constants(is_own[:3]), *node.args], node.keywords)
        if len(others) == 1 and len(pairs) > 1 + is_function:
            return ast.Call(_name(_PAIRED), [node.func, ast.Constant(others[0]), *_pairs_of(node)], node.keywords)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        is_own = tuple(map(self._is_own, [node.left, *node.comparators]))
        self.generic_visit(node)
        if len(is_own) > 2 or all(is_own):
            return node
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            is_negated = ast.Constant(isinstance(node.ops[0], ast.NotIn))
            return ast.Call(_name(_CONTAINED), [is_negated, _constants(is_own), node.left, node.comparators[0]], [])
        if type(node.ops[0]) not in _OPERATORS:
            return node
        return self._operation(node.ops[0], node.left, node.comparators[0], is_own)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        is_own = self._is_own(node.left), self._is_own(node.right)
        self.generic_visit(node)
        return (
            self._operation(node.op, node.left, node.right, is_own)
            if type(node.op) is ast.Sub and not all(is_own)
            else node
        )

    def _operation(self, sign: ast.AST, left: ast.expr, right: ast.expr, is_own: tuple[bool, ...]) -> ast.Call:
        name = _OPERATORS[type(sign)].__name__
        return ast.Call(_name(_COMPARED), [ast.Constant(name), _constants(is_own), left, right], [])


def _constants(values: Sequence[bool]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(value) for value in values], ast.Load())


def _name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())


def _other_names(node: ast.Assign) -> list[str]:
    """Of such a function: `close = np.allclose`, also by functools.partial."""
    values = [node.value, *node.value.args] if isinstance(node.value, ast.Call) else [node.value]
    is_function = any(
        isinstance(value, ast.Attribute | ast.Name) and _last_name(value) in _FUNCTIONS for value in values
    )
    return [target.id for target in node.targets if is_function and isinstance(target, ast.Name)]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _pairs_of(node: ast.Call) -> list[ast.expr]:
    """The arguments of zip, or of map with its function; none of another call, or where they cannot be told."""
    if not isinstance(node.func, ast.Name) or node.func.id not in ("zip", "map"):
        return []
    arguments: list[ast.expr] = []
    for one in node.args:
        is_listed = isinstance(one, ast.Starred) and isinstance(one.value, ast.List | ast.Tuple)
        arguments += one.value.elts if is_listed else [one]  # type: ignore[attr-defined]
    return [] if any(isinstance(one, ast.Starred) for one in arguments) else arguments


def _parameters(function: ast.FunctionDef, nodes: list[ast.AST]) -> Iterator[tuple[str, ast.AST | None]]:
    """The parameters of a function of the tests, and what they get: from its calls, or from pytest's marks."""
    names = [one.arg for one in function.args.args]
    uses = [one for one in nodes if isinstance(one, ast.Name) and one.id == function.name]
    calls = [one for one in nodes if isinstance(one, ast.Call) and one.func in uses]
    marks = [
        one for one in function.decorator_list if isinstance(one, ast.Call) and _last_name(one.func) == "parametrize"
    ]
    given: list[tuple[str, ast.AST | None]] = []
    for mark in marks:
        if len(mark.args) > 1 and isinstance(mark.args[0], ast.Constant):
            given += [(name.strip(), mark.args[1]) for name in str(mark.args[0].value).split(",")]
    for call in calls:
        given += [*zip(names, call.args, strict=False), *((one.arg, one.value) for one in call.keywords if one.arg)]
    is_seen = len(calls) == len(uses) and not any(isinstance(one, ast.Starred) for call in calls for one in call.args)
    if is_seen and not function.args.defaults:
        names = [name for name in names if name not in {one for one, _ in given}]
    yield from given
    yield from ((name, None) for name in names)


def _assignments(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.AST | None]]:
    """Names that the tests bind, and to what; None where that is not seen, as of a function."""
    own = {id(one) for node in nodes if isinstance(node, ast.FunctionDef) for one in node.args.args}
    for node in nodes:
        if id(node) in own:
            continue
        if isinstance(node, ast.FunctionDef):
            yield from _parameters(node, nodes)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = [(target, node.value) for target in targets]
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            pairs = [(node.target, node.iter)]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            pairs = [(node.optional_vars, None)]
        elif isinstance(node, ast.arg | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield (node.arg if isinstance(node, ast.arg) else node.name), None
            continue
        else:
            continue
        yield from ((one.id, value) for target, value in pairs for one in ast.walk(target) if isinstance(one, ast.Name))


def shape_helpers() -> dict[str, Any]:
    """What the rewritten tests use."""
    return {_CALLED: _called, _COMPARED: _compared, _CONTAINED: _contained, _PAIRED: _paired}


def _called(function: Callable[..., Any], is_own: tuple[bool, ...], *args: Any, **kwargs: Any) -> Any:
    """A function that compares its first two arguments, or a method that compares its object with the first one.

    is_own: of the object, and of both arguments.
    """
    names = ("a", "b", "a1", "a2", "actual", "desired", "expected", "x", "y", "first", "second", "other")
    owner = getattr(function, "__self__", None)
    is_method, name = _is_array(owner), getattr(function, "__name__", "")
    both = [*([owner] if is_method else ()), *args, *(kwargs[one] for one in names if one in kwargs)][:2]
    if len(both) < 2 or (name in _METHODS and not any(map(_is_listed, both))):
        return function(*args, **kwargs)
    owns = (*is_own, False, False, False)[0 if is_method else 1 :]
    if name in _DIFFERENCES:
        return _subtracted(lambda *_: function(*args, **kwargs), owns, *both)
    others = both[1] if name == "assertIn" and isinstance(both[1], list | tuple) else both[1:]
    if others and not any(_fit(both[0], other, owns) for other in others):
        raise AssertionError(_difference(*both))
    return function(*args, **kwargs)


def _subtracted(subtract: Callable[[Any, Any], Any], is_own: Sequence[bool], left: Any, right: Any) -> Any:
    """`left - right`, if both have items or none, and for pandas, which leaves out what is missing, as many."""
    shapes = _shape(left), _shape(right)
    is_empty = [shape is not None and 0 in shape for shape in shapes]
    is_pandas = any(type(one).__module__.partition(".")[0] == "pandas" for one in (left, right))
    if None not in shapes and (
        is_empty[0] != is_empty[1] or (is_pandas and () not in shapes and shapes[0] != shapes[1])
    ):
        raise AssertionError(_difference(left, right))
    result = subtract(left, right)
    if is_pandas and is_own[0] != is_own[1]:
        missing = int(_num_missing(result)), int(_num_missing(left if is_own[0] else right))
        if missing[0] > missing[1]:
            raise AssertionError(f"the answer has {missing[0]} missing values")
    return result


def _num_missing(value: Any) -> int:
    return sys.modules["pandas"].isna(sys.modules["numpy"].asarray(value)).sum()


def _contained(is_negated: bool, is_own: tuple[bool, bool], left: Any, right: Any) -> bool:
    """`left in right`, of which an item may be made by pytest.approx."""
    if isinstance(right, list | tuple) and any(map(_is_approximate, right)):
        return any(bool(_compared("eq", is_own, left, one)) for one in right) is not is_negated
    return (left in right) is not is_negated


def _compared(name: str, is_own: tuple[bool, bool], left: Any, right: Any) -> Any:
    """`left == right` and the like; of other shapes nothing is equal, smaller or larger."""
    if name in ("eq", "ne") and any(
        not own and _fits_all(name, one, other)
        for own, one, other in zip(is_own, (left, right), (right, left), strict=True)
    ):
        return name == "ne"
    if not (_has_shape(left) or _has_shape(right)):
        return _BY_NAME[name](left, right)
    if name == "sub":
        return _subtracted(operator.sub, is_own, left, right)
    if _fit(left, right, is_own):
        return _BY_NAME[name](left, right)
    if name in ("eq", "ne"):
        numpy: Any = sys.modules["numpy"]
        return numpy.bool_(name == "ne")  # which has all() and any()
    raise AssertionError(_difference(left, right))


def _fits_all(name: str, value: Any, other: Any) -> bool:
    """Whether an object of the code says to what it cannot know what it would say to an equal value."""
    if type(value) in _PLAIN or _is_array(value) or _is_approximate(value):
        return False
    others: list[Any] = [object()]
    if isinstance(other, int | float):
        others.append(other + 1.5)
    elif isinstance(other, str | list | tuple):
        longer: Any = type(other)("?")
        others.append(other + longer)
    try:
        return any(bool(_BY_NAME[name](value, one)) is (name == "eq") for one in others)
    except Exception:  # of its own methods: the comparison itself will raise it
        return False


def _paired(function: Callable[..., Any], place: int, *args: Any, **kwargs: Any) -> Any:
    """zip or map, which does not end early for an answer with fewer items than what it is compared with."""
    others = [len(one) for number, one in enumerate(args) if number != place and hasattr(one, "__len__")]
    if not others:
        return function(*args, **kwargs)
    return function(*args[:place], _whole(iter(args[place]), min(others)), *args[place + 1 :], **kwargs)


def _whole(answer: Iterator[Any], number: int) -> Iterator[Any]:
    count = 0
    for one in answer:
        count += 1
        yield one
    if count < number:
        raise AssertionError(f"an answer of {count} items is compared with {number}")


def _fit(left: Any, right: Any, is_own: Sequence[bool]) -> bool:
    """Whether the shapes are equal, or one is a number of the tests' and the other has items; so for what they hold."""
    left, right = (one.expected if _is_approximate(one) else one for one in (left, right))
    shapes = _shape(left), _shape(right)
    fits = None in shapes or shapes[0] == shapes[1]
    if not fits and not any(is_own[n] and shapes[n] == () and 0 not in shapes[1 - n] for n in (0, 1)):  # type: ignore[operator]
        return False
    return all(_fit(one, other, is_own) for one, other in _items_of_both(left, right))


def _items_of_both(left: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(left, dict) and isinstance(right, dict):
        yield from ((left[key], right[key]) for key in left.keys() & right.keys())
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        pairs = zip(left, right, strict=True)
        yield from (pair for pair in pairs if not all(isinstance(one, _SINGLE) for one in pair))


def _has_shape(value: Any) -> bool:
    """Whether it is an array or made by pytest.approx, or has such an item."""
    if isinstance(value, list | tuple | dict):
        return any(map(_has_shape, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, _SINGLE) and (_is_array(value) or _is_approximate(value))


def _is_listed(value: Any) -> bool:
    return isinstance(value, list | tuple) or _is_array(value)


def _shape(value: Any) -> tuple[int, ...] | None:
    """None for what is no number and no array of them."""
    value = value.expected if _is_approximate(value) else value
    if isinstance(value, bool | int | float | complex | str):
        return ()
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not (_is_array(value) or isinstance(value, list | tuple)):
        return None
    try:
        is_mixed = isinstance(value, list | tuple) and numpy.asarray(value).dtype == object
        return None if is_mixed else tuple(numpy.shape(value))
    except Exception:  # lists of different lengths, or a method of the code's object
        return None


def _is_array(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(type(value), "__array__")


def _is_approximate(value: Any) -> bool:
    """Whether it is made by pytest.approx."""
    return type(value).__module__.startswith("_pytest.") and hasattr(value, "expected") and "numpy" in sys.modules


def _difference(left: Any, right: Any) -> str:
    return f"the shapes {_shape(left)} and {_shape(right)} differ: an answer has the shape of its reference"
