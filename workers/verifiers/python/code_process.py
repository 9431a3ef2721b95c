"""The process in which the code of the response runs: it does what the tests ask for.

In two processes it knows nothing else, and nothing that the code does here decides anything. Tests that need objects of
the code (`workers.verifiers.python.uses`) run here too: such code could report what it likes.
"""

from __future__ import annotations

import ast
import io
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from workers.verifiers.python.forms import NOT_USED, run_helpers
from workers.verifiers.python.values import Decoder, Encoder
from workers.verifiers.python.verdict import error_line, verdict_of

MAX_PRINTED = 2**16  # characters a request
_SPARE_FRAMES = 30  # of this module, below the code's own


class CodeProcess:
    """Performs the requests of the tests."""

    def __init__(self) -> None:
        sys.modules["solution"] = module = types.ModuleType("solution")  # for dataclasses and pickle
        self._space = vars(module)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request."""
        sys.stdout = printed = io.StringIO()
        decoder = Decoder()
        args = [decoder.decode(one) for one in request["args"]]
        kwargs = {name: decoder.decode(one) for name, one in request["kwargs"].items()}
        before = [_items(value) for value in decoder.containers]
        encoder = Encoder(_object, decoder.containers)
        perform: Callable[..., Any] = getattr(self, f"_{request['do']}")
        reply: dict[str, Any] = {}
        try:
            reply["value"] = encoder.encode(perform(*args, **kwargs))
        except BaseException as error:
            encoder = Encoder(_object, decoder.containers)
            reply = {"error": encoder.encode(error), "line": error_line(error, "answer")}
        changed = [n for n, value in enumerate(decoder.containers) if not _are_same(_items(value), before[n])]
        reply["changed"] = [[n, encoder.contents(decoder.containers[n])] for n in changed]
        return reply | {"printed": printed.getvalue()[:MAX_PRINTED]}

    def _run(self, text: str, name: str) -> None:
        exec(compile(text, name, "exec", dont_inherit=True), self._space)

    def _names(self, names: list[str]) -> dict[str, Any]:
        """What the code defines of these: whether it is a function, else its value."""
        values = {}
        for name in names:
            first, *attributes = name.split("().")
            if first in self._space and not first.startswith("__"):
                value = self._space[first]
                is_value = not callable(value) or Encoder(_object).encode(value)[0] != "object"
                values[name] = (False, value) if is_value and not attributes else (True, None)
        return values

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        first, *attributes = name.split("().")
        value = self._space[first]
        for attribute in attributes:
            value = getattr(value(), attribute)
        return value(*args, **kwargs)

    def _judge(self, prefix: str, tests: str, credit: str) -> dict[str, Any]:
        """The verdict of tests that run here."""
        tree = ast.parse(tests, "tests")
        space = {name: value for name, value in self._space.items() if not name.startswith("__")}
        is_used = any(isinstance(node, ast.Name) and node.id in space for node in ast.walk(tree))
        result = verdict_of(tree, space, run_helpers(prefix), credit)
        return result if is_used or "passed" not in result else {"unscorable": NOT_USED}


def _object(value: Any) -> list[str]:
    return ["object", type(value).__name__]


def _items(container: Any) -> list[Any]:
    """What it holds; of an array something new, as its items are numbers in its memory."""
    if type(container).__module__ == "numpy":
        return [object()]
    return [*container, *container.values()] if isinstance(container, dict) else [*container]


def _are_same(items: list[Any], before: list[Any]) -> bool:
    """Whether they are the same objects."""
    return len(items) == len(before) and all(one is other for one, other in zip(items, before, strict=True))


def serve_code(reader: int, writer: int) -> None:
    """Answer requests until the other process ends."""
    sys.setrecursionlimit(sys.getrecursionlimit() + _SPARE_FRAMES)
    exit_, process, dumps = os._exit, CodeProcess(), json.dumps
    with os.fdopen(reader, "rb") as requests, os.fdopen(writer, "wb") as replies:
        try:
            for line in requests:
                replies.write(dumps(process.answer(json.loads(line))).encode() + b"\n")
                replies.flush()
        finally:
            exit_(0)
