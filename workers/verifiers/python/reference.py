"""The reference answer of the python verifier: tests, and what is put before the code of every answer.

What is put before is separated from the tests by a line; HumanEval's prompts, which are the head of a function with
imports and helpers, become such a part.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

SEPARATOR = "# --- tests ---"
_CHECK = re.compile(r"^def check\(\w+\):", re.MULTILINE)
_CHECK_CALL = re.compile(r"^check\(", re.MULTILINE)


def split_reference(gold: str) -> tuple[str, str]:
    """What is put before the code, and the tests."""
    before, separator, tests = gold.partition(f"\n{SEPARATOR}\n")
    return (before, tests) if separator else ("", gold)


def without_stubs(prefix: str) -> str:
    """The imports and helpers of a prefix, without functions that have no body yet. Error: SyntaxError."""
    tree = ast.parse(prefix)
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and _is_stub(node))]
    return ast.unparse(tree)


def _is_stub(node: ast.FunctionDef) -> bool:
    return all(
        isinstance(line, ast.Pass | ast.Import | ast.ImportFrom)
        or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in node.body
    )


def code_question(row: Mapping[str, Any], question: str, answer: str) -> tuple[Any, str]:
    """Question and reference answer of such a row; a list's first test joins the question, which else names no
    function. Error: ValueError."""
    text, tests = row.get(question), row.get(answer)
    reference = reference_of_row(row, question, answer)
    if isinstance(text, str) and isinstance(tests, list):
        text = f"{text}\n\nYour code should pass this test, and others:\n{tests[0]}"
    return text, reference


def reference_of_row(row: Mapping[str, Any], question: str, answer: str) -> str:
    """The reference answer of a row in the columns of HumanEval or MBPP.

    answer: the column of the tests, a text or a list of assertions. `test_imports` and `test_setup_code` come before
    them; `check(candidate)` is called with `entry_point`, and then the question, if it is Python, is put before the
    code of each answer. Error: ValueError.
    """
    tests = "\n".join(filter(None, [*map(_lines, (row.get(name) for name in _BEFORE)), _lines(row.get(answer))]))
    entry_point = row.get("entry_point")
    if not tests.strip():
        raise ValueError(f"{answer!r} has no tests")
    if not isinstance(entry_point, str) or not entry_point.isidentifier():
        return tests
    if _CHECK.search(tests) and not _CHECK_CALL.search(tests):
        tests += f"\n\ncheck({entry_point})"
    prompt = row.get(question)
    try:
        has_code = isinstance(prompt, str) and bool(ast.parse(prompt).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        has_code = False
    return f"{prompt}\n{SEPARATOR}\n{tests}" if has_code else tests


_BEFORE = ("test_imports", "test_setup_code")
TEST_COLUMNS = (*_BEFORE, "entry_point")  # that a row may have beside its tests


def _lines(cell: Any) -> str:
    """A cell of code; a list of lines too. Error: ValueError."""
    lines = cell if isinstance(cell, list) else [cell or ""]
    if not all(isinstance(line, str) for line in lines):
        raise ValueError("tests are text, or a list of texts")
    return "\n".join(lines)
