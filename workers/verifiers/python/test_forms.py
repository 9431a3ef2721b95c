"""The forms that tests are written in, and how each is run: assertions, functions, classes, HumanEval's check."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from workers.verifiers.python.peer import RemoteObject
from workers.verifiers.python.reference import without_stubs

COUNTER = "_hacrl_assertion"
NOT_USED = "its tests did not use the code"


class Failed(Exception):
    """A test did not pass."""


class NotRun(BaseException):
    """The tests cannot be run, or assert nothing; the text says why."""


class Assertions(ast.NodeTransformer):
    """Makes each assertion count itself: `assert x` becomes `COUNTER(); assert x`."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        return [_count(node), node]

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt] | ast.stmt:
        """Also a call of a method or function whose name says that it asserts."""
        self.generic_visit(node)
        return self._counting(node, node.value)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> Any:
        self.generic_visit(node)
        return self._counting(node, node.items[0].context_expr)

    visit_AsyncWith = visit_With

    def visit_If(self, node: ast.If) -> Any:
        """`if f(2) != 4: raise ...` asserts too."""
        self.generic_visit(node)
        is_raising = any(isinstance(part, ast.Raise) for part in node.body)
        return [_count(node), node] if is_raising else node

    def _counting(self, node: ast.stmt, value: ast.expr) -> Any:
        called = value.func if isinstance(value, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        is_assertion = name.lower().startswith("assert") or name in ("raises", "fail")
        return [_count(node), node] if is_assertion else node


def _count(node: ast.stmt) -> ast.stmt:
    call = ast.Expr(ast.Call(ast.Name(COUNTER, ast.Load()), [], []))
    return ast.fix_missing_locations(ast.copy_location(call, node))


def run_helpers(prefix: str) -> dict[str, Any]:
    """What a prompt defines besides the function to be written. The code may define it anew, but not for the tests."""
    space: dict[str, Any] = {"__name__": "prompt"}
    exec(compile(without_stubs(prefix), "prompt", "exec", dont_inherit=True), space)
    return {name: value for name, value in space.items() if not name.startswith("__")}


def run_tests(tree: ast.Module, space: dict[str, Any]) -> int:
    """Run the tests in a namespace that has the solution's names; returns the number of assertions that were run.

    Errors: any that a test raises; NotRun.
    """
    number = [0]

    def count() -> None:
        number[0] += 1

    own = {**space, "__name__": "tests", COUNTER: count}
    sys.modules.setdefault("tests", type(sys)("tests"))
    exec(compile(Assertions().visit(tree), "tests", "exec", dont_inherit=True), own)
    for thing, name in tests_in(own):
        run_test(thing, name)
    if not number[0] and inspect.isfunction(own.get("check")):
        raise NotRun("check(candidate) is never called: call it with the function's name")
    return number[0]


def tests_in(own: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """What is defined there and still has to be run."""
    for name, thing in [*own.items()]:
        if isinstance(thing, RemoteObject) or getattr(thing, "__module__", "") != "tests":
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
