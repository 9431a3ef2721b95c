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

_CALLED, _COMPARED, _ZIPPED = "_hacrl_called", "_hacrl_compared", "_hacrl_zipped"
_FUNCTIONS = {
    "allclose", "isclose", "array_equiv", "assert_allclose", "assert_almost_equal", "assert_approx_equal",
    "assert_array_almost_equal", "assert_array_almost_equal_nulp", "assert_array_equal", "assert_array_less",
    "assert_array_max_ulp", "assert_equal", "assert_close",
}  # fmt: skip
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Sub: operator.sub,
}  # fmt: skip
_PLAIN = (int, float, complex, str, bytes, bool, type(None), list, tuple, dict, set, frozenset)
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
        self.generic_visit(node)
        if name in self._functions and not (all(is_own) and has_own_keywords):
            return ast.Call(_name(_CALLED), [node.func, _constants(is_own[:2]), *node.args], node.keywords)
        if name == "zip" and isinstance(node.func, ast.Name) and is_own.count(False) == 1 and len(is_own) > 1:
            return ast.Call(_name(_ZIPPED), [ast.Constant(is_own.index(False)), *node.args], node.keywords)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        is_own = tuple(map(self._is_own, [node.left, *node.comparators]))
        self.generic_visit(node)
        if len(is_own) > 2 or type(node.ops[0]) not in _OPERATORS or all(is_own):
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


def _assignments(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.AST | None]]:
    """Names that the tests bind, and to what; None where that is not seen, as of a parameter or a function."""
    for node in nodes:
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
    return {_CALLED: _called, _COMPARED: _compared, _ZIPPED: _zipped}


def _called(function: Callable[..., Any], is_own: tuple[bool, ...], *args: Any, **kwargs: Any) -> Any:
    """A function that compares its first two arguments."""
    options = [
        kwargs[name] for name in ("a", "b", "a1", "a2", "actual", "desired", "expected", "x", "y") if name in kwargs
    ]
    both = [*args, *options][:2]
    if len(both) == 2 and not _fit(both[0], both[1], (*is_own, False, False)):
        raise AssertionError(_difference(*both))
    return function(*args, **kwargs)


def _compared(name: str, is_own: tuple[bool, bool], left: Any, right: Any) -> Any:
    """`left == right` and the like; of other shapes nothing is equal, smaller or larger."""
    if name in ("eq", "ne") and any(
        not own and _fits_all(name, one, other)
        for own, one, other in zip(is_own, (left, right), (right, left), strict=True)
    ):
        return name == "ne"
    if not (_is_array(left) or _is_array(right) or _is_approximate(left) or _is_approximate(right)):
        return _BY_NAME[name](left, right)
    shapes = _shape(left), _shape(right)
    if name == "sub":
        is_empty = [shape is not None and 0 in shape for shape in shapes]
        fits = is_empty[0] == is_empty[1] or None in shapes
    else:
        fits = _fit(left, right, is_own)
    if fits:
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


def _zipped(place: int, *args: Any, **kwargs: Any) -> Any:
    """zip, which does not end early for an answer that is shorter than what it is compared with."""
    others = [len(one) for one in args[:place] + args[place + 1 :] if isinstance(one, list | tuple | str | dict)]
    answer = args[place]
    if others and hasattr(answer, "__len__") and len(answer) < min(others):
        raise AssertionError(f"an answer of {len(answer)} items is compared with {min(others)}")
    return zip(*args, **kwargs)  # noqa: B905 - as the tests say


def _fit(left: Any, right: Any, is_own: tuple[bool, ...]) -> bool:
    """Whether the shapes are equal, or one is a number of the tests' and the other has items."""
    shapes = _shape(left), _shape(right)
    if None in shapes or shapes[0] == shapes[1]:
        return True
    return any(is_own[n] and shapes[n] == () and 0 not in shapes[1 - n] for n in (0, 1))  # type: ignore[operator]


def _shape(value: Any) -> tuple[int, ...] | None:
    """None for what is no number and no array of them."""
    value = value.expected if _is_approximate(value) else value
    if isinstance(value, bool | int | float | complex | str):
        return ()
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not (_is_array(value) or isinstance(value, list | tuple)):
        return None
    try:
        return tuple(numpy.shape(value))
    except Exception:  # lists of different lengths, or a method of the code's object
        return None


def _is_array(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(type(value), "__array__")


def _is_approximate(value: Any) -> bool:
    """Whether it is made by pytest.approx."""
    return type(value).__module__.startswith("_pytest.") and hasattr(value, "expected") and "numpy" in sys.modules


def _difference(left: Any, right: Any) -> str:
    return f"the shapes {_shape(left)} and {_shape(right)} differ: an answer has the shape of its reference"
