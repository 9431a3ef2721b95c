"""The tests' end of the connection to the process of the code.

A message is a line of JSON: a request `{"do", "args", "kwargs"}`, or its reply `{"value" or "error", "changed"}`;
`changed` has the new contents of the lists and other containers in the request. What comes back is plain values
(`workers.verifiers.python.values`), which are compared here: no line of the code runs in the process of the tests, and
no method that the code defines can make a comparison true.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import os
import select
import sys
import time
from typing import Any

from workers.verifiers.python.uses import modules_used
from workers.verifiers.python.values import Decoder, Encoder

MAX_MESSAGE_BYTES = 16 * 2**20
_ALIASES = {"np": "numpy"}  # modules by the names that they usually have


class ConnectionBroken(BaseException):
    """The code's process ended, or sent no message that its rules allow. No `except Exception` of a test catches it."""


class TooLate(ConnectionBroken):
    """The time is over."""


class Unsupported(BaseException):
    """The tests pass to the code what is no plain value."""


class CodeObjectError(Exception):
    """The tests pass an object of the code to the code."""


class CodeObject:
    """Stands for an object of the code, of which the tests see nothing but the name of its class."""

    __slots__ = ("_class_name",)

    def __init__(self, class_name: str) -> None:
        self._class_name = class_name

    def __repr__(self) -> str:
        return f"<object of {self._class_name}>"


class CodeFunction:
    """A function of the code; a method of a new object each time, if its name is `Class().method`."""

    def __init__(self, connection: CodeConnection, name: str) -> None:
        self._connection, self._name = connection, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._connection.ask("call", self._name, *args, **kwargs)


class CodeConnection:
    """num_calls: how often the tests called the code.  breach: why the connection can be used no more.  classes: of
    objects that the code returned."""

    def __init__(self, reader: int, writer: int, deadline: float) -> None:
        """deadline: by time.monotonic()."""
        self._reader, self._writer, self._buffer, self._deadline = reader, writer, bytearray(), deadline
        self.num_calls, self.breach = 0, ""
        self.classes: set[str] = set()

    def ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """The result of an operation in the code's process. Errors: those of the code; ConnectionBroken."""
        self.num_calls += operation == "call"
        encoder = Encoder(_refused)
        request = {"do": operation, "args": [encoder.encode(one) for one in args]}
        self._send(request | {"kwargs": {name: encoder.encode(one) for name, one in kwargs.items()}})
        reply = self._receive()
        try:
            decoder = Decoder(self._object_of, encoder.containers)
            error = reply.get("error")
            value = decoder.decode(reply.get("value") if error is None else error)
            for place, contents in reply.get("changed", ()):
                decoder.fill(encoder.containers[place], contents)
        except Exception as problem:
            raise self._broken(f"a message with no meaning ({type(problem).__name__})") from None
        if isinstance(text := reply.get("printed"), str) and text:
            sys.stdout.write(text)
        if error is None:
            return value
        if not isinstance(value, BaseException):
            raise self._broken("an error that is none")
        if isinstance(value, StopIteration | StopAsyncIteration | GeneratorExit):
            value = RuntimeError(f"the code raised {type(value).__name__}")  # it would end loops of the tests
        if isinstance(line := reply.get("line"), int):
            vars(value)["_line_of_code"] = line  # for the reason of the verdict
        raise value

    def names_for(self, tests: ast.AST) -> dict[str, Any]:
        """What the tests use of the code.

        A builtin such as `sorted` is Python's, unless the tests use nothing else that the code could define; a module
        such as `math` is Python's too, if the tests use it as a module without importing it.
        """
        names = {node.id for node in ast.walk(tests) if isinstance(node, ast.Name)}
        own = {name: value for name, value in self.ask("names", sorted(names)).items() if name in names}
        modules = modules_used(tests) & {*own}
        others = [name for name in own if name not in modules and not hasattr(builtins, name)]
        space: dict[str, Any] = {name: importlib.import_module(_ALIASES.get(name, name)) for name in modules}
        for name in others or [name for name in own if name not in modules]:
            is_callable, value = own[name]
            space[name] = CodeFunction(self, name) if is_callable else value
        return space

    def _object_of(self, class_name: Any) -> CodeObject:
        self.classes.add(name := str(class_name)[:100])
        return CodeObject(name)

    def _send(self, message: dict[str, Any]) -> None:
        if self.breach:
            raise ConnectionBroken(self.breach)
        data = memoryview(json.dumps(message).encode() + b"\n")
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"more than {MAX_MESSAGE_BYTES // 2**20} MiB are passed")
        try:
            while data:
                data = data[os.write(self._writer, data) :]
        except OSError:
            raise self._broken("") from None

    def _receive(self) -> dict[str, Any]:
        while (end := self._buffer.find(b"\n")) < 0:
            if not select.select([self._reader], [], [], max(0.0, self._deadline - time.monotonic()))[0]:
                self.breach = "the time is over"
                raise TooLate(self.breach)
            piece = os.read(self._reader, 2**16)
            if not piece or len(self._buffer) > MAX_MESSAGE_BYTES:
                raise self._broken(f"more than {MAX_MESSAGE_BYTES // 2**20} MiB" if piece else "")
            self._buffer += piece
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise self._broken("no message")
        return message

    def _broken(self, breach: str) -> ConnectionBroken:
        self.breach = f"the code's process sent {breach}" if breach else "the code ended before its tests did"
        return ConnectionBroken(self.breach)


def _refused(value: Any) -> Any:
    if isinstance(value, CodeObject | CodeFunction):
        raise CodeObjectError(f"an object of the code is passed to it: {value!r}")
    raise Unsupported(f"its tests pass an object of {type(value).__name__} to the code")
