"""One end of the connection between the process of the tests and the process of the solution.

Each end can call, read and change objects that stay in the other one, by handles. A message is a line of JSON: a
request `{"do", "args", "kwargs"}`, or its reply `{"value" or "error", "changed"}`; `changed` has the new contents of
the lists and other containers in the request. While an end waits for a reply it answers requests: a solution calls
functions that the tests gave it.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

from workers.verifiers.python.values import TYPE_NAMES, Decoder, Encoder

MAX_MESSAGE_BYTES = 16 * 2**20
# Exceptions of the standard library that tests may expect by name, beside the builtin ones.
_EXCEPTION_MODULES = {
    "json.decoder", "decimal", "re", "struct", "binascii", "statistics", "dataclasses", "asyncio.exceptions", "_csv",
    "configparser", "_queue", "queue",
}  # fmt: skip


class ConnectionBroken(BaseException):
    """The other process ended, or sent no message that its rules allow. No `except Exception` of a test catches it."""


class TooLate(ConnectionBroken):
    """The time is over."""


class Unsupported(BaseException):
    """The tests use an object in a way that two processes cannot share."""


class RemoteObject:
    """An object of the other process: attributes, calls and iteration ask it there."""

    __slots__ = ("__weakref__", "_handle", "_peer")
    _peer: Peer
    _handle: int

    def __init__(self, peer: Peer, handle: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_handle", handle)

    def __getattr__(self, name: str) -> Any:
        return self._peer.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.ask("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._peer.ask("delete", self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._peer.ask("call", self, *args, **kwargs)

    def __enter__(self) -> Any:
        return self._peer.ask("enter", self)

    def __exit__(self, *error: Any) -> Any:
        return self._peer.ask("exit", self, error[1])

    def __bool__(self) -> bool:
        return self._peer.ask("bool", self) is True

    def __hash__(self) -> int:
        return hash(self._handle)

    def __getitem__(self, key: Any) -> Any:
        return self._peer.ask("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._peer.ask("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._peer.ask("delitem", self, key)


def _asking(operation: str) -> Any:
    def method(self: RemoteObject, *operands: Any) -> Any:
        return self._peer.ask(operation, self, *operands)

    return method


for _name in ("iter", "next", "len", "str", "repr", "float", "int", "index", "complex", "abs", "neg", "pos", "invert",
              "round", "reversed"):  # fmt: skip
    setattr(RemoteObject, f"__{_name}__", _asking(_name))


class Peer:
    """This end. `remote_class`: what the other one's objects are here."""

    remote_class: type[RemoteObject] = RemoteObject

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer, self._buffer = reader, writer, bytearray()
        self._own: list[Any] = []  # by handle
        self._handles: dict[int, int] = {}
        self._remote: dict[int, Any] = {}
        self.deadline = float("inf")
        self.breach = ""  # why the connection can be used no more

    # Requests and replies

    def ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """The result of an operation in the other process. Errors: those of the operation; ConnectionBroken."""
        encoder = Encoder(self._export)
        request: dict[str, Any] = {"do": operation, "args": [encoder.encode(one) for one in args]}
        request["kwargs"] = {name: encoder.encode(one) for name, one in kwargs.items()}
        self._send(request)
        while "do" in (reply := self._receive()):
            self._send(self.answer(reply))
        try:
            decoder = Decoder(self._import, encoder.containers)
            error = reply.get("error")
            value = decoder.decode(reply.get("value") if error is None else error)
            for place, contents in reply.get("changed", ()):
                decoder.fill(encoder.containers[place], contents)
        except Exception as problem:
            raise self._broken(f"a message with no meaning ({type(problem).__name__})") from None
        self.on_reply(reply)
        if error is None:
            return value
        if not isinstance(value, BaseException):
            raise self._broken("an error that is none")
        if operation not in ("next", "anext") and isinstance(value, StopIteration | StopAsyncIteration | GeneratorExit):
            value = RuntimeError(f"the code raised {type(value).__name__}")  # it would end loops of the tests
        if isinstance(where := reply.get("line"), int):
            value.answer_line = where  # for the reason of the verdict
        raise value

    def on_reply(self, reply: dict[str, Any]) -> None:
        """What else a reply brings."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request. Errors: any, if the request is none."""
        decoder = Decoder(self._import)
        args = [decoder.decode(one) for one in request["args"]]
        kwargs = {name: decoder.decode(one) for name, one in request["kwargs"].items()}
        before = [self._state(value, decoder.containers) for value in decoder.containers]
        reply: dict[str, Any] = {}
        encoder = Encoder(self._export, decoder.containers)
        try:
            reply["value"] = encoder.encode(self.perform(request["do"], args, kwargs))
        except ConnectionBroken:
            raise
        except BaseException as error:
            encoder = Encoder(self._export, decoder.containers)
            reply = {"error": self._exception(encoder, error), "line": error_line(error, "answer")}
        changed = [
            n for n, value in enumerate(decoder.containers) if self._state(value, decoder.containers) != before[n]
        ]
        reply["changed"] = [[n, encoder.contents(decoder.containers[n])] for n in changed]
        return reply

    def perform(self, operation: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Do what the other process asks for. Errors: any."""
        raise NotImplementedError

    def _state(self, container: Any, originals: list[Any]) -> Any:
        return Encoder(self._export, originals).contents(container)

    # Messages

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
            left_s = self.deadline - time.monotonic()
            timeout = None if left_s == float("inf") else max(0.0, left_s)
            if not select.select([self._reader], [], [], timeout)[0]:
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

    # Objects that stay where they are

    def _export(self, encoder: Encoder, value: Any) -> Any:
        """The code of an object that is no data."""
        if isinstance(value, RemoteObject):
            return ["own", value._handle]
        if isinstance(value, BaseException):
            return self._exception(encoder, value)
        if isinstance(value, type) and issubclass(value, BaseException):
            return self._exception_class(value)
        return self.export(encoder, value)

    def export(self, encoder: Encoder, value: Any) -> Any:
        """The code of an object of this process that is neither data nor an exception."""
        raise NotImplementedError

    def handle(self, value: Any) -> int:
        """Its number, by which the other process names it."""
        number = self._handles.setdefault(id(value), len(self._own))
        if number == len(self._own):
            self._own.append(value)
        return number

    def _import(self, decoder: Decoder, code: list[Any]) -> Any:
        """The object of a code that is no data. Errors: any."""
        if code[0] == "own":
            return self._own[code[1]]
        if code[0] == "error":
            return self._imported_exception(decoder, *code[1:])
        if code[0] == "error class":
            return self._imported_class(*code[1:])
        if code[0] == "handle":
            return self._remote.setdefault(code[1], None) or self._new_remote(code[1])
        return self.import_(decoder, code)

    def import_(self, decoder: Decoder, code: list[Any]) -> Any:
        """The object of any other code."""
        raise ValueError(code[0])

    def _new_remote(self, handle: int) -> RemoteObject:
        self._remote[handle] = self.remote_class(self, handle)
        return self._remote[handle]

    # Exceptions are data with a class; a class of the other process is made here again, for `except`

    def _exception(self, encoder: Encoder, error: BaseException) -> list[Any]:
        try:
            args = [encoder.encode(one) for one in BaseException.__getattribute__(error, "args")]
            text = str(str(error))[:1000]
        except Exception:
            args, text = [], ""
        return ["error", self._exception_class(type(error)), args, text, self.handle(error)]

    def _exception_class(self, kind: type[BaseException]) -> list[Any]:
        if kind in TYPE_NAMES:
            return ["type", TYPE_NAMES[kind]]
        remote = kind.__dict__.get("_remote_handle")
        if isinstance(remote, int):
            return ["own", remote]
        bases = [self._exception_class(base) for base in kind.__bases__ if issubclass(base, BaseException)]
        return ["error class", self.handle(kind), str(kind.__name__), bases, str(kind.__module__)]

    def _imported_exception(self, decoder: Decoder, class_code: list[Any], codes: list[Any], text: str, n: int) -> Any:
        kind = decoder.decode(class_code)
        if not issubclass(kind, BaseException):
            raise ValueError(kind)
        args = [decoder.decode(code) for code in codes]
        try:
            error = kind(*args)
        except Exception:
            error = kind.__new__(kind)
            error.args = tuple(args)
        if is_remote(kind):
            error._remote_text, error._remote_object = str(text), self._new_remote(n)
        return error

    def _imported_class(self, handle: int, name: str, base_codes: list[Any], module: str) -> type:
        if handle in self._remote:
            return self._remote[handle]
        standard = _standard_exception(module, name)
        bases = tuple(Decoder(self._import).decode(code) for code in base_codes)
        if not standard and not all(issubclass(base, BaseException) for base in bases):
            raise ValueError(bases)
        members = {"_remote_handle": handle, "_remote_text": "", "_remote_object": None}
        members |= {"__str__": lambda error: error._remote_text, "__getattr__": _attribute_of_error}
        members["__init__"] = lambda error, *args, **kwargs: None
        self._remote[handle] = standard or type(str(name), bases, members)
        return self._remote[handle]


def _attribute_of_error(error: Any, name: str) -> Any:
    if error._remote_object is None:
        raise AttributeError(name)
    return getattr(error._remote_object, name)


def _standard_exception(module: str, name: str) -> type | None:
    """An exception class of the standard library."""
    if module not in _EXCEPTION_MODULES:
        return None
    import importlib

    kind = getattr(importlib.import_module(module), name, None)
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None


def is_remote(kind: type) -> bool:
    """Whether an exception's class was made for one of the other process."""
    return "_remote_handle" in vars(kind)


def error_line(error: BaseException, filename: str) -> int | None:
    """The last line in a file that the error passed."""
    line, trace = None, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
