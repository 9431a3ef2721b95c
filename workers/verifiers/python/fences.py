"""Which code of a response is its solution: the last fenced block that parses as Python.

Fences are those of Markdown: three or more backticks or tildes, also indented. A block without a language counts, as
an example of use or an output often does: blocks that define a function or a class come before others.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

MAX_PARSED_CHARACTERS = 100_000
_MAX_CLOSINGS = 20  # that are tried for one opening fence: code may hold fences in its texts
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)", re.DOTALL)
_LANGUAGE = re.compile(r"[{\s.]*([\w+#-]*)")
_PYTHON = {"", "python", "py", "python3", "py3"}


@dataclass(frozen=True)
class _Fence:
    line: int
    indent: str
    marks: str
    info: str

    @property
    def language(self) -> str:
        match = _LANGUAGE.match(self.info)
        return match[1].lower() if match else ""

    def closes(self, opening: _Fence) -> bool:
        return self.marks.startswith(opening.marks) and not self.info.strip()


def solution_code(response: str, prefix: str = "") -> str | None:
    """The code of a response; None without a closed block, or if its last block of Python is cut off.

    prefix: what will be put before it, such as the head of a function whose body the response may be.
    """
    blocks = _blocks(_without_thoughts(response), prefix)
    if blocks is None:
        return None
    ranks = [_rank(block, prefix) for block in blocks]
    best = max(ranks, default=-1)
    return next((block for block, rank in zip(reversed(blocks), reversed(ranks), strict=True) if rank == best), None)


def parses(code: str) -> bool:
    """Whether it is Python."""
    return _parsed(code) is not None


def _parsed(code: str) -> ast.Module | None:
    if len(code) > MAX_PARSED_CHARACTERS:
        return None
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # MemoryError: nested too deeply
        return None


def _without_thoughts(response: str) -> str:
    """What follows the thoughts; thoughts that do not end are no answer."""
    answer = response.rpartition("</think>")[2]
    return answer.partition("<think>")[0]


def _blocks(text: str, prefix: str) -> list[str] | None:
    """The blocks in Python, or without a language; None if the last one is not closed."""
    lines = text.replace("\r\n", "\n").split("\n")
    fences = [
        _Fence(number, match[1], match[2], match[3])
        for number, line in enumerate(lines)
        if (match := _FENCE.fullmatch(line)) and not (match[2][0] == "`" and "`" in match[3])
    ]
    blocks: list[str] = []
    next_line = 0
    for place, opening in enumerate(fences):
        if opening.line < next_line:
            continue
        is_python = opening.language in _PYTHON
        closings = [fence for fence in fences[place + 1 :] if fence.closes(opening)]
        if not closings:
            return None if is_python else blocks
        texts = {
            fence.line: _inside(lines, opening, fence, prefix)
            for fence in closings[: _MAX_CLOSINGS if is_python else 1]
        }
        end = next((line for line, code in texts.items() if _rank(code, prefix) > 0), closings[0].line)
        next_line = end + 1
        if is_python:
            blocks.append(texts[end])
    return blocks


def _inside(lines: list[str], opening: _Fence, closing: _Fence, prefix: str) -> str:
    """The lines between two fences; without their indentation if they are no code with it."""
    inside = lines[opening.line + 1 : closing.line]
    code = "\n".join(inside)
    unindented = "\n".join(line.removeprefix(opening.indent) for line in inside)
    choices = (code, unindented, textwrap.dedent(code))
    return next((choice for choice in choices if _rank(choice, prefix)), unindented)


def _rank(code: str, prefix: str) -> int:
    """3 for code that defines a function or a class, 2 for other statements, 1 for values alone, 0 if it is no code."""
    tree = _parsed(code)
    if tree is None:
        return 3 if prefix and code.strip() and parses(f"{prefix}\n{code}") else 0
    if any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in ast.walk(tree)):
        return 3
    values = all(isinstance(node, ast.Expr) for node in tree.body)
    return 1 if values else 2
