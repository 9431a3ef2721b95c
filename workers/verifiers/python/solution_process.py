"""The process in which the solution's code runs: it does what the tests ask for, and knows nothing else.

Nothing that the code does here decides anything: the tests and the verdict are in another process
(`workers.verifiers.python.test_process`), which compares the values that come back.
"""

from __future__ import annotations

import importlib
import io
import operator
import os
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from workers.verifiers.python.peer import Peer, RemoteObject
from workers.verifiers.python.values import Decoder, Encoder

MAX_PRINTED = 2**16  # characters a request
_SPARE_FRAMES = 30  # of this module, below the code's own
OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr, "set": setattr, "delete": delattr, "bool": bool, "getitem": operator.getitem,
    "setitem": operator.setitem, "delitem": operator.delitem, "iter": iter, "next": next, "len": len, "str": str,
    "repr": repr, "float": float, "int": int, "index": operator.index, "complex": complex, "abs": abs,
    "neg": operator.neg, "pos": operator.pos, "invert": operator.invert, "round": round, "reversed": reversed,
    "enter": lambda value: value.__enter__(), "instance": lambda value, kind: isinstance(value, kind),
    "exit": lambda value, error: value.__exit__(type(error) if error else None, error, None),
}  # fmt: skip
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift",
              "rshift", "lt", "le", "gt", "ge"):  # fmt: skip
    OPERATIONS[_name] = getattr(operator, _name)


class TestObject(RemoteObject):
    """An object of the tests, such as a function that the solution shall call."""

    __slots__ = ()

    def __eq__(self, other: object) -> Any:
        return self is other or self._peer.ask("eq", self, other)

    __hash__ = RemoteObject.__hash__

    def __contains__(self, item: Any) -> bool:
        return bool(self._peer.ask("contains", self, item))

    def __lt__(self, other: Any) -> Any:
        return self._peer.ask("lt", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._peer.ask("gt", self, other)


class Solution(Peer):
    """Serves the tests' requests."""

    remote_class = TestObject

    def __init__(self, reader: int, writer: int) -> None:
        super().__init__(reader, writer)
        sys.modules["solution"] = module = types.ModuleType("solution")  # for dataclasses and pickle
        self.space = vars(module)
        self._loop: Any = None

    def perform(self, operation: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if operation == "call":
            return args[0](*args[1:], **kwargs)
        if operation == "run":
            exec(compile(args[0], args[1], "exec", dont_inherit=True), self.space)
            return None
        if operation == "name":
            return self.space[args[0]]
        if operation == "names":
            return [name for name in args[0] if name in self.space and not name.startswith("__")]
        if operation == "await":
            return self._run_async(_result(args[0]))
        if operation == "anext":
            return self._run_async(_result(args[0].__anext__()))
        return OPERATIONS[operation](*args)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        sys.stdout = printed = io.StringIO()
        reply = super().answer(request)
        reply["printed"] = printed.getvalue()[:MAX_PRINTED]
        return reply

    def _run_async(self, coroutine: Any) -> Any:
        import asyncio

        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(coroutine)

    def export(self, encoder: Encoder, value: Any) -> Any:
        kind = type(value)
        if kind is types.ModuleType:
            return ["module", value.__name__]
        if kind is types.CoroutineType:
            return ["coroutine", self.handle(value)]
        if kind is types.AsyncGeneratorType:
            return ["async generator", self.handle(value)]
        return ["handle", self.handle(value)]

    def import_(self, decoder: Decoder, code: list[Any]) -> Any:
        if code[0] == "module":
            return importlib.import_module(code[1])
        if code[0] == "library":
            value: Any = importlib.import_module(code[1])
            for name in code[2].split("."):
                value = getattr(value, name)
            return value
        if code[0] == "pattern":
            return re.compile(code[1], code[2])
        return super().import_(decoder, code)


async def _result(awaitable: Any) -> Any:
    return await awaitable


def serve_solution(reader: int, writer: int) -> None:
    """Answer requests until the other process ends."""
    sys.setrecursionlimit(sys.getrecursionlimit() + _SPARE_FRAMES)
    exit_, solution = os._exit, Solution(reader, writer)
    receive, send, answer = solution._receive, solution._send, solution.answer
    try:
        while True:
            send(answer(receive()))
    except BaseException:
        exit_(0)
