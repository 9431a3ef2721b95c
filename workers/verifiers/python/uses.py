"""How tests use the code of a response: most call its functions with plain values and compare plain values.

Tests that do more need objects of the code, and run in its process (`why_one_process`). The text of the tests decides,
never what a response does: it could otherwise choose the process in which it may cheat.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from workers.verifiers.python.reference import without_stubs

ONE_PROCESS = "# one process"  # a line of tests whose need is not seen here
_ALIASES = ("np",)  # names that modules usually have
_PLAIN = (list, dict, set, tuple, str, bytes, int, float, complex, range, Counter, OrderedDict, defaultdict, deque,
          datetime, timedelta, Decimal, Fraction, ValueError)  # fmt: skip
# What a test may take of a result: attributes of plain values, and those of arrays.
_PLAIN_ATTRIBUTES = {name for kind in _PLAIN for name in dir(kind)} | {
    "all", "any", "astype", "dtype", "flatten", "item", "max", "mean", "min", "ndim", "ravel", "reshape", "round",
    "shape", "size", "std", "sum", "T", "tobytes", "tolist", "var",
}  # fmt: skip
_BUILTIN_FUNCTIONS = {name for name, value in vars(builtins).items() if callable(value) and not isinstance(value, type)}
_OPENING = ("StringIO", "BytesIO", "open", "compile", "Lock")
_LOOKING = ("str", "repr", "hash", "format", "isinstance", "issubclass", "iter", "next", "type", "vars")
_REPLACED = ("sys.stdin", "sys.argv", "builtins.input")
_SOLUTION = "Solution"  # by convention a class without state


def modules_used(tests: ast.AST) -> set[str]:
    """Names of library modules of which the tests use attributes."""
    values = [node.value for node in ast.walk(tests) if isinstance(node, ast.Attribute)]
    return {_text(value) for value in values} & {*sys.stdlib_module_names, *_ALIASES}


def with_methods(tree: ast.Module) -> ast.Module:
    """The tests with a method of a new object, such as `Solution().add`, as one name: they use nothing else of it."""
    return ast.fix_missing_locations(_Methods(tree).visit(tree))


def why_one_process(prefix: str, tests: str) -> str:
    """What the tests do that needs objects of the code; empty if plain values do. Errors: SyntaxError, ValueError."""
    if ONE_PROCESS in map(str.strip, tests.splitlines()):
        return "say so"
    return next(_Uses(with_methods(ast.parse(tests)), ast.parse(without_stubs(prefix)).body).reasons(), "")


def code_names(prefix: str, tests: str) -> set[str]:
    """What the tests use and nobody defines but the code. Errors: SyntaxError, ValueError."""
    tree = ast.parse(tests)
    uses = _Uses(tree, ast.parse(without_stubs(prefix)).body)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return {node.id for node in names} - bound - uses.known


class _Methods(ast.NodeTransformer):
    def __init__(self, tree: ast.Module) -> None:
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_solution(node.value)]
        self._solutions = {_text(target) for node in assigned for target in node.targets} - {""}

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.func = self._method(node.func)
        if _text(node.func) == "check":
            node.args = [self._method(one) for one in node.args]
        return node

    def _method(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Attribute) and (_is_solution(node.value) or _text(node.value) in self._solutions):
            return ast.Name(f"{_SOLUTION}().{node.attr}", ast.Load())
        return node


def _is_solution(node: ast.AST) -> bool:
    """Whether it is `Solution()`."""
    return isinstance(node, ast.Call) and _text(node.func) == _SOLUTION and not node.args and not node.keywords


class _Uses:
    """The uses of the code in a tree of tests; `before` are the statements of what the prompt defines."""

    def __init__(self, tree: ast.Module, before: list[ast.stmt]) -> None:
        self._nodes = [*ast.walk(tree)]
        self._parents = {child: node for node in self._nodes for child in ast.iter_child_nodes(node)}
        defined = [node for node in [*self._nodes, *before] if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        self._own = {node.name for node in defined}
        self._classes = {node.name for node in defined if isinstance(node, ast.ClassDef) and not _is_special(node)}
        # Whatever else is called by its name is the code's, or may be, as the parameter of HumanEval's `check`.
        self.known = self._own | modules_used(tree) | {*vars(builtins)} | _imported([*self._nodes, *before])
        assigned = [node for node in self._nodes if isinstance(node, ast.Assign) and self._is_call(node.value)]
        self._results = {_text(target) for node in assigned for target in node.targets} - {""}

    def _is_call(self, node: ast.AST | None) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in self.known

    def reasons(self) -> Iterator[str]:
        for node in self._nodes:
            if isinstance(node, ast.AsyncFunctionDef) or _text(node) == "asyncio":
                yield "await the code"
            elif isinstance(node, ast.Import | ast.ImportFrom) and "mock" in ast.unparse(node):
                yield "replace what the code uses"
            elif isinstance(node, ast.Attribute):
                yield from self._of_attribute(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield from self._of_name(node.id, self._parents[node])
            if self._is_call(node):
                assert isinstance(node, ast.Call)
                yield from self._of_result(_text(node.func), node, self._parents[node])
                yield from self._of_arguments([*node.args, *(one.value for one in node.keywords)])

    def _of_attribute(self, node: ast.Attribute) -> Iterator[str]:
        if isinstance(node.ctx, ast.Store) and _text(node) in _REPLACED:
            yield "replace what the code uses"
        if (self._is_call(node.value) or _text(node.value) in self._results) and node.attr not in _PLAIN_ATTRIBUTES:
            yield f"use {ast.unparse(node)[:80]}"

    def _of_name(self, name: str, parent: ast.AST) -> Iterator[str]:
        if name in self._classes and not _is_solution(parent):
            yield f"make objects of the class {name}"
        is_compared = isinstance(parent, ast.Call) and _called(parent) in ("isinstance", "issubclass")
        is_class = is_compared or isinstance(parent, ast.Attribute | ast.ClassDef)
        if is_class and name not in self.known and name[0].isupper():
            yield f"use the class {name}"

    def _of_result(self, name: str, node: ast.Call, parent: ast.AST) -> Iterator[str]:
        is_called = isinstance(parent, ast.Call) and parent.func is node
        if isinstance(parent, ast.withitem) or is_called:
            yield f"use an object that {name} returns"
        # A capitalized name is a class if its objects are kept, combined or looked at.
        if name[0].isupper() and "()." not in name and not (isinstance(parent, ast.Assign) and _is_solution(node)):
            is_kept = isinstance(parent, ast.Assign | ast.AnnAssign | ast.BinOp | ast.List | ast.Tuple | ast.Attribute)
            is_looked_at = isinstance(parent, ast.Call) and (self._is_call(parent) or _called(parent) in _LOOKING)
            others = [parent.left, *parent.comparators] if isinstance(parent, ast.Compare) else []
            if is_kept or is_looked_at or sum(map(self._is_call, others)) > 1:
                yield f"use objects of the class {name}"

    def _of_arguments(self, arguments: list[ast.expr]) -> Iterator[str]:
        for node in arguments:
            if isinstance(node, ast.List | ast.Tuple):
                yield from self._of_arguments(node.elts)
            is_method = isinstance(node, ast.Attribute) and _text(node.value) in vars(builtins)
            if isinstance(node, ast.Lambda) or is_method or _text(node) in self._own | _BUILTIN_FUNCTIONS:
                yield "pass a function to the code"
            if isinstance(node, ast.Call) and _called(node) in _OPENING:
                yield f"pass the result of {_called(node)} to the code"


def _imported(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that imports bind; all those of a standard module for `import *`."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module in sys.stdlib_module_names:
            names |= {*dir(importlib.import_module(node.module or ""))}
    return names


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else _text(call.func)


def _text(node: ast.AST) -> str:
    """`name` or `name.attribute`; empty for what is neither."""
    if isinstance(node, ast.Attribute):
        return f"{_text(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_special(node: ast.ClassDef) -> bool:
    """Whether it is a class of tests or of exceptions."""
    bases = [_text(base) for base in node.bases]
    return node.name.startswith("Test") or any(base.endswith(("TestCase", "Error", "Exception")) for base in bases)
