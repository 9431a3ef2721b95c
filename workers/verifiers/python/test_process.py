"""The process in which the tests run and the verdict is given. No line of the solution runs here.

What the tests take from the solution are data, which is compared here, or objects of the other process. Such an
object never sees a value that the tests compare it with: it equals only itself, is in no order, and takes part in no
arithmetic with data. So no method that a solution defines can make a comparison true.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import io
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from workers.verifiers.python.peer import Peer, RemoteObject, Unsupported
from workers.verifiers.python.values import Decoder, Encoder

_ALIASES = {"np": "numpy"}  # modules by the names that they usually have
_SPECIAL: dict[str, Callable[..., Any]] = {
    "iter": iter, "next": next, "len": len, "str": str, "repr": repr, "bool": bool, "float": float, "int": int,
    "getitem": lambda value, key: value[key], "eq": lambda value, other: value == other,
    "lt": lambda value, other: value < other, "gt": lambda value, other: value > other,
    "contains": lambda value, item: item in value, "enter": lambda value: value.__enter__(),
    "exit": lambda value, error: value.__exit__(type(error) if error else None, error, None),
}  # fmt: skip


class SolutionObject(RemoteObject):
    """An object of the solution's process."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = RemoteObject.__hash__

    def __contains__(self, item: Any) -> bool:
        return any(item is one or item == one for one in iter(self.__iter__()))

    def __instancecheck__(self, value: Any) -> bool:
        return self._peer.ask("instance", value, self) is True

    def __format__(self, form: str) -> str:
        return format(str(self), form)


def _with_objects(operation: str) -> Any:
    def method(self: SolutionObject, other: Any) -> Any:
        return self._peer.ask(operation, self, other) if isinstance(other, SolutionObject) else NotImplemented

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift",
              "rshift", "lt", "le", "gt", "ge"):  # fmt: skip
    setattr(SolutionObject, f"__{_name}__", _with_objects(f"{_name}_" if _name in ("and", "or") else _name))


class Tests(Peer):
    """The tests' end. `num_calls`: how often they called the solution's code."""

    remote_class = SolutionObject

    def __init__(self, reader: int, writer: int) -> None:
        super().__init__(reader, writer)
        self.num_calls = 0

    def ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        self.num_calls += operation not in ("run", "names", "name")
        return super().ask(operation, *args, **kwargs)

    def on_reply(self, reply: dict[str, Any]) -> None:
        if isinstance(text := reply.get("printed"), str) and text:
            sys.stdout.write(text)

    def perform(self, operation: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Only what the tests gave away, and no attribute that leads to the interpreter."""
        value = args[0]
        if not any(value is own for own in self._own):
            raise TypeError("not an object of the tests")
        if operation == "call" and callable(value):
            return value(*args[1:], **kwargs)
        if operation in ("get", "set"):
            if not _has_attributes(value) or args[1].startswith("_"):
                raise AttributeError(args[1])
            return getattr(value, args[1]) if operation == "get" else setattr(value, args[1], args[2])
        if operation in ("setitem", "delitem"):
            return value.__setitem__(*args[1:]) if operation == "setitem" else value.__delitem__(args[1])
        return _SPECIAL[operation](value, *args[1:])

    def export(self, encoder: Encoder, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__]
        if isinstance(value, re.Pattern):
            return ["pattern", value.pattern, value.flags]
        if name := _library_name(value):
            return ["library", *name]
        is_function = isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType)
        if is_function or isinstance(value, functools.partial) or hasattr(type(value), "__next__"):
            return ["handle", self.handle(value)]
        if _has_attributes(value) or (isinstance(value, type) and value.__module__ == "tests"):
            return ["handle", self.handle(value)]
        raise Unsupported(f"its tests pass an object of {type(value).__name__} to the code")

    def import_(self, decoder: Decoder, code: list[Any]) -> Any:
        if code[0] == "module":
            return _Module()
        if code[0] == "coroutine":
            return self._coroutine(self._new_remote(code[1]))
        if code[0] == "async generator":
            return self._async_items(self._new_remote(code[1]))
        return super().import_(decoder, code)

    async def _coroutine(self, remote: Any) -> Any:
        return self.ask("await", remote)

    async def _async_items(self, remote: Any) -> Any:
        while True:
            try:
                item = self.ask("anext", remote)
            except StopAsyncIteration:
                return
            yield item

    def names_for(self, tests: ast.AST) -> dict[str, Any]:
        """What the tests use of the solution.

        A builtin such as `sorted` is Python's, unless the tests use nothing else that the solution could define; a
        module such as `math` is Python's too, if the tests use it as a module without importing it.
        """
        names = {node.id for node in ast.walk(tests) if isinstance(node, ast.Name)}
        own = set(self.ask("names", sorted(names))) & names
        modules = _modules_used(tests) & own
        others = [name for name in own - modules if not hasattr(builtins, name)]
        space = {name: importlib.import_module(_ALIASES.get(name, name)) for name in modules}
        space |= {name: self.ask("name", name) for name in others or own - modules}
        return {name: value for name, value in space.items() if not isinstance(value, _Module)}


class _Module:
    """A module of the solution's process, of which the tests can use nothing."""


def _modules_used(tests: ast.AST) -> set[str]:
    """Names of library modules of which the tests use attributes."""
    values = [node.value for node in ast.walk(tests) if isinstance(node, ast.Attribute)]
    names = {value.id for value in values if isinstance(value, ast.Name)}
    return names & {*sys.stdlib_module_names, *_ALIASES}


def _has_attributes(value: Any) -> bool:
    """Whether it is an object that the solution may read and change: of a class of the tests, or a text file."""
    return type(value).__module__ == "tests" or isinstance(value, io.IOBase)


def _library_name(value: Any) -> tuple[str, str] | None:
    """Module and name of a function or class of a library, which the other process has too."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if type(value).__name__ in ("method_descriptor", "wrapper_descriptor"):
        module, name = value.__objclass__.__module__, f"{value.__objclass__.__name__}.{value.__name__}"
    if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules or module == "tests":
        return None
    place: Any = sys.modules[module]
    for part in name.split("."):
        place = getattr(place, part, None)
    return (module, name) if place is value else None
