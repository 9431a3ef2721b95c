"""Partial credit of the tests: which of their assertions hold, each judged on its own.

A unit is one assertion as it stands in the tests, however often it runs: it holds if it runs and never fails. Units
that hold without the code count for nothing. What fails between two assertions ends its test, as usual, and the units
after it do not hold; so does an error at the top of the file, after which nothing more is run.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from types import TracebackType
from typing import Any

from workers.verifiers.python.test_forms import NotRun, run_test, tests_in

GUARD = "_hacrl_unit"


class _Guards(ast.NodeTransformer):
    """Puts each assertion in a block of its own: `assert x` becomes `with GUARD(number): assert x`."""

    def __init__(self) -> None:
        self.num_units = 0

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        # `assert False` after what should raise is reached by incorrect code alone.
        return node if isinstance(node.test, ast.Constant) else self._guarded(node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        name = _called_name(node.value)
        is_assertion = name.lower().startswith("assert") or name == "raises"
        return self._guarded(node) if is_assertion else node

    def visit_With(self, node: ast.With | ast.AsyncWith) -> ast.stmt:
        name = _called_name(node.items[0].context_expr)
        if name.lower().startswith("assert") or name == "raises":
            return self._guarded(node)
        self.generic_visit(node)
        return node

    visit_AsyncWith = visit_With

    def visit_If(self, node: ast.If) -> ast.stmt:
        """`if f(2) != 4: raise ...` asserts too."""
        if any(isinstance(part, ast.Raise) for part in node.body):
            return self._guarded(node)
        self.generic_visit(node)
        return node

    def _guarded(self, node: ast.stmt) -> ast.stmt:
        number, self.num_units = self.num_units, self.num_units + 1
        call = ast.Call(ast.Name(GUARD, ast.Load()), [ast.Constant(number)], [])
        guarded = ast.With([ast.withitem(call)], [node])
        return ast.fix_missing_locations(ast.copy_location(guarded, node))


def _called_name(value: ast.expr) -> str:
    called = value.func if isinstance(value, ast.Call) else None
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


class _Unit:
    """The block around one assertion: it notes whether it held, and goes on after it."""

    def __init__(self, results: dict[int, bool], number: int) -> None:
        self._results, self._number = results, number

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self._results[self._number] = self._results.get(self._number, True) and error is None
        return isinstance(error, Exception)


class _Absent:
    """Stands for what the code defines where there is no code, so that `check(f)` runs and each of its calls fails."""

    def __call__(self, *_: object, **__: object) -> None:
        raise NameError("there is no code")


def num_units_held(tree: ast.Module, space: dict[str, Any], helpers: dict[str, Any]) -> tuple[int, int]:
    """How many assertions hold, and how many there are, without those that hold without the code.

    tree: of the tests, which is changed.  space: what they use of the code and the prompt.  helpers: of the prompt
    alone.  Errors: BaseException, of the connection.
    """
    guards = _Guards()
    code = compile(ast.fix_missing_locations(guards.visit(tree)), "tests", "exec", dont_inherit=True)
    absent: dict[str, Any] = dict.fromkeys(space, _Absent())
    free = _held(code, absent | helpers)
    held = _held(code, space)
    return len(held - free), guards.num_units - len(free)


def _held(code: Any, space: dict[str, Any]) -> set[int]:
    results: dict[int, bool] = {}
    own = {**space, "__name__": "tests", GUARD: lambda number: _Unit(results, number)}
    with suppress(Exception):  # of the top of the file: the units before it are noted
        exec(code, own)
        for thing, name in tests_in(own):
            with suppress(Exception, NotRun):
                run_test(thing, name)
    return {number for number, holds in results.items() if holds}
