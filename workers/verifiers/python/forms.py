"""The forms that tests are written in, and how each is run: assertions, functions, classes, HumanEval's check.

A unit is one assertion as it stands in the tests, however often it runs: it holds if it runs and never fails.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from workers.verifiers.python.degenerate.shapes import shape_helpers, with_shapes
from workers.verifiers.python.reference import without_stubs

GUARD = "_hacrl_unit"
NOT_USED = "its tests did not use the code"


class Failed(Exception):
    """A test did not pass."""


class NotRun(BaseException):
    """The tests cannot be run, or assert nothing; the text says why."""


class _Guards(ast.NodeTransformer):
    """Puts each assertion in a block of its own: `assert x` becomes `with GUARD(number): assert x`."""

    def __init__(self) -> None:
        self.num_units = 0

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        # `assert False` after what should raise is reached by incorrect code alone.
        return self._guarded(node, is_unit=not isinstance(node.test, ast.Constant))

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Also a call of a method or function whose name says that it asserts."""
        name = _called_name(node.value)
        return self._guarded(node, is_unit=name != "fail") if _asserts(name) or name == "fail" else node

    def visit_With(self, node: ast.With | ast.AsyncWith) -> ast.stmt:
        return self._guarded(node) if _asserts(_called_name(node.items[0].context_expr)) else self._visited(node)

    visit_AsyncWith = visit_With

    def visit_If(self, node: ast.If) -> ast.stmt:
        """`if f(2) != 4: raise ...` asserts too."""
        return self._guarded(node) if any(isinstance(part, ast.Raise) for part in node.body) else self._visited(node)

    def _visited(self, node: ast.stmt) -> ast.stmt:
        self.generic_visit(node)
        return node

    def _guarded(self, node: ast.stmt, is_unit: bool = True) -> ast.stmt:
        number = ast.Constant(self.num_units if is_unit else None)
        self.num_units += is_unit
        guarded = ast.With([ast.withitem(ast.Call(ast.Name(GUARD, ast.Load()), [number], []))], [node])
        return ast.copy_location(guarded, node)


def _called_name(value: ast.expr) -> str:
    called = value.func if isinstance(value, ast.Call) else None
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _asserts(name: str) -> bool:
    return name.lower().startswith("assert") or name == "raises"


@dataclass
class _Units:
    """Whether each assertion held that was run. is_lenient: a test goes on after one that fails."""

    is_lenient: bool
    num_run: int = 0
    held: dict[int, bool] = field(default_factory=dict)

    @contextmanager
    def guard(self, number: int | None) -> Iterator[None]:
        """The block around one assertion."""
        self.num_run += 1
        try:
            yield
        except BaseException as error:
            if number is not None:
                self.held[number] = False
            if number is None or not self.is_lenient or not isinstance(error, Exception):
                raise
        else:
            if number is not None:
                self.held.setdefault(number, True)


class _Absent:
    """Stands for what the code defines where there is no code, so that `check(f)` runs and each of its calls fails."""

    def __call__(self, *_: object, **__: object) -> None:
        raise NameError("there is no code")


class Tests:
    """Tests, ready to run. Error: SyntaxError."""

    def __init__(self, tree: ast.Module) -> None:
        """tree: is changed."""
        guards = _Guards()
        tree = with_shapes(guards.visit(tree))
        self._code = compile(tree, "tests", "exec", dont_inherit=True)
        self._num_units = guards.num_units
        sys.modules.setdefault("tests", type(sys)("tests"))

    def run(self, space: dict[str, Any]) -> int:
        """Run them in a namespace that has the code's names; returns the number of assertions that were run.

        Errors: any that a test raises; NotRun.
        """
        units = _Units(is_lenient=False)
        own = {**space, **shape_helpers(), "__name__": "tests", GUARD: units.guard}
        exec(self._code, own)
        for thing, name in tests_in(own):
            run_test(thing, name)
        if not units.num_run and inspect.isfunction(own.get("check")):
            raise NotRun("check(candidate) is never called: call it with the function's name")
        return units.num_run

    def num_held(self, space: dict[str, Any], helpers: dict[str, Any]) -> tuple[int, int]:
        """How many assertions hold, and how many there are, without those that hold without the code.

        What fails between two assertions ends its test; an error at the top of the file ends everything. space: as
        above.  helpers: what it has of the prompt.  Errors: BaseException, of the connection.
        """
        free = self._held(dict.fromkeys(space, _Absent()) | helpers)
        return len(self._held(space) - free), self._num_units - len(free)

    def _held(self, space: dict[str, Any]) -> set[int]:
        units = _Units(is_lenient=True)
        own = {**space, **shape_helpers(), "__name__": "tests", GUARD: units.guard}
        with suppress(Exception):  # of the top of the file: the units before it are noted
            exec(self._code, own)
            for thing, name in tests_in(own):
                with suppress(Exception, NotRun):
                    run_test(thing, name)
        return {number for number, holds in units.held.items() if holds}


def run_helpers(prefix: str) -> dict[str, Any]:
    """What a prompt defines besides the function to be written. The code may define it anew, but not for the tests."""
    space: dict[str, Any] = {"__name__": "prompt"}
    exec(compile(without_stubs(prefix), "prompt", "exec", dont_inherit=True), space)
    return {name: value for name, value in space.items() if not name.startswith("__")}


def tests_in(own: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """What is defined there and still has to be run."""
    for name, thing in [*own.items()]:
        if getattr(thing, "__module__", "") != "tests":
            continue
        is_test_class = isinstance(thing, type) and (_is_unittest(thing) or name.startswith("Test"))
        if is_test_class or (name.startswith("test") and inspect.isfunction(thing)):
            yield thing, name


def _is_unittest(thing: type) -> bool:
    unittest: Any = sys.modules.get("unittest")
    return unittest is not None and issubclass(thing, unittest.TestCase)


def run_test(thing: Any, name: str) -> None:
    """A function, or the tests of a class. Errors: any that a test raises; NotRun."""
    if not isinstance(thing, type):
        _run_function(thing, name, thing)
    elif _is_unittest(thing):
        _run_unittest(thing)
    else:
        _run_class(thing)


def _run_unittest(case: Any) -> None:
    import unittest

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    for _, trace in [*result.errors, *result.failures]:
        raise Failed(trace.strip().splitlines()[-1])
    if result.unexpectedSuccesses:
        raise Failed("a test passes that is marked as failing")
    if result.skipped and len(result.skipped) == result.testsRun:
        raise NotRun(f"its tests are skipped ({result.skipped[0][1]})")


def _run_class(case: type) -> None:
    """A class as pytest reads it: a new object for each test."""
    if "__init__" in vars(case):
        raise NotRun(f"class {case.__name__} has __init__: pytest does not run it either")
    for name in [name for name in vars(case) if name.startswith("test")]:
        subject = case()
        for hook in ("setup_class", "setup_method"):
            _hook(subject, hook, name)
        try:
            _run_function(getattr(subject, name), name, vars(case)[name])
        finally:
            for hook in ("teardown_method", "teardown_class"):
                _hook(subject, hook, name)


def _hook(subject: Any, hook: str, name: str) -> None:
    method = getattr(subject, hook, None)
    if method is not None:
        method(*[getattr(subject, name)][: len(inspect.signature(method).parameters)])


def _run_function(function: Callable[..., Any], name: str, marked: Any) -> None:
    """Once, or once for each row of `pytest.mark.parametrize`."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise NotRun(f"{name} is a generator, which runs no test: use plain functions")
    for arguments in _parameters(marked, name):
        needed = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is parameter.empty and parameter.kind not in (2, 4) and parameter.name not in arguments
        ]
        if needed:
            raise NotRun(f"{name} needs {', '.join(needed)}: fixtures are not run")
        result = function(**arguments)
        if inspect.iscoroutine(result):
            import asyncio

            asyncio.run(result)


def _parameters(marked: Any, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{}]
    for mark in getattr(marked, "pytestmark", []):
        if mark.name in ("skip", "skipif", "xfail"):
            raise NotRun(f"{name} is marked {mark.name}")
        if mark.name == "parametrize":
            names, values = mark.args[0], mark.args[1]
            names = [one.strip() for one in names.split(",")] if isinstance(names, str) else [*names]
            sets = [getattr(value, "values", value) for value in values]
            sets = [
                (value,) if len(names) == 1 and not hasattr(values[n], "marks") else value
                for n, value in enumerate(sets)
            ]
            rows = [{**row, **dict(zip(names, value, strict=True))} for row in rows for value in sets]
    return rows
