"""Event loops of asyncio without sockets, which the sandbox refuses: a loop wakes itself by a pipe."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


class _PipeEnd:
    """What a loop needs of its socket."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        return self._descriptor

    def recv(self, size: int) -> bytes:
        return os.read(self._descriptor, size)

    def send(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def setblocking(self, is_blocking: bool) -> None:
        os.set_blocking(self._descriptor, is_blocking)

    def close(self) -> None:
        os.close(self._descriptor)


def _pipe_pair(*_: Any) -> tuple[_PipeEnd, _PipeEnd]:
    reader, writer = os.pipe()
    return _PipeEnd(reader), _PipeEnd(writer)


class _Finder:
    """A finder of `sys.meta_path`, which changes `asyncio.selector_events` once it is imported.

    Loading it now would be slow, and few solutions need it.
    """

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "asyncio.selector_events":
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            module.socket = _Sockets(module.socket)

        loader.exec_module = exec_module
        return spec


class _Sockets:
    """The module `socket` with pipes for socketpair."""

    def __init__(self, module: Any) -> None:
        self._module = module

    socketpair = staticmethod(_pipe_pair)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def use_pipes() -> None:
    """From now on, loops of asyncio need no sockets."""
    sys.meta_path.insert(0, _Finder())  # not of its base class, which is slow to import
