"""Plain values as JSON between the process of the tests and the process of the code.

Numbers, text, containers, dates, arrays and exceptions are copied. Only the data of an object of a subclass is read,
so that a number or a list is one, whatever its methods say; an iterator is read to its end. No other object is passed.
Errors of `decode` mean that the other process broke the rules.
"""

from __future__ import annotations

import base64
import builtins
import importlib
import json
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

MAX_PLAIN_INTEGER = 2**53
MAX_ITEMS = 10_000  # of an iterator
TYPES: dict[str, type] = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}
TYPES |= {
    kind.__name__: kind
    for kind in (Counter, OrderedDict, defaultdict, deque, date, datetime, time, timedelta, timezone, Decimal, Fraction)
}
TYPE_NAMES: dict[Any, str] = {kind: name for name, kind in TYPES.items()}
# Exceptions of the standard library that tests may expect by name, beside the builtin ones.
_EXCEPTION_MODULES = {
    "json.decoder", "decimal", "re", "struct", "binascii", "statistics", "dataclasses", "asyncio.exceptions", "_csv",
    "configparser", "_queue", "queue",
}  # fmt: skip
_DTYPE = re.compile(r"[<>|=]?[biufcSUmM?]\d*(\[\w+\])?")
# Containers that can change: a change is copied back.
_OF_TAG: dict[str, Any] = {
    "l": list, "d": dict, "s": set, "ba": bytearray, "dq": deque, "od": OrderedDict, "ct": Counter, "dd": defaultdict
}  # fmt: skip
_CONTAINERS = {kind: tag for tag, kind in _OF_TAG.items()}
# Values that cannot change: their class, a tag, the plain values that they are made of, and how they are made again.
_FIXED: list[tuple[type, str, Callable[[Any], Iterable[Any]], Callable[..., Any]]] = [
    (tuple, "t", iter, lambda *items: items),
    (frozenset, "f", iter, lambda *items: frozenset(items)),
    (bytes, "b", lambda value: [_text(value)], lambda text: base64.b64decode(text)),
    (complex, "c", lambda value: [value.real, value.imag], complex),
    (range, "range", lambda value: [value.start, value.stop, value.step], range),
    (type(...), "ellipsis", lambda value: [], lambda: ...),
    (Decimal, "dec", lambda value: [str(value)], Decimal),
    (Fraction, "frac", lambda value: [value.numerator, value.denominator], Fraction),
    (date, "date", lambda value: value.timetuple()[:3], date),
    (time, "time", lambda value: [value.isoformat(), value.fold], lambda text, fold: _at(time, text, fold)),
    (datetime, "datetime", lambda value: [value.isoformat(), value.fold], lambda text, fold: _at(datetime, text, fold)),
    (timedelta, "timedelta", lambda value: [value.days, value.seconds, value.microseconds], timedelta),
    (type({}.keys()), "keys", iter, lambda *items: dict.fromkeys(items).keys()),
    (type({}.values()), "values", iter, lambda *items: dict(enumerate(items)).values()),
    (type({}.items()), "pairs", iter, lambda *items: dict(items).items()),
]
_PARTS = {kind: (tag, parts) for kind, tag, parts, _ in _FIXED}
_MADE: dict[str, Callable[..., Any]] = {tag: make for _, tag, _, make in _FIXED}
_MADE |= {
    "i": lambda text: int(text, 16),
    "items": lambda is_cut, *items: _items(is_cut, items),
    "type": lambda name: TYPES[name],
    "nt": lambda name, fields, *items: namedtuple(name, fields)(*items),  # checks the names
    "error": lambda *parts: _error(*parts),
    "error class": lambda name, module, *bases: _error_class(name, module, bases),
}
# How the data of an object of a subclass is read, without its own methods.
_READ: dict[type, Callable[[Any], Any]] = {
    int: int.__index__,
    float: float.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes(bytes.__iter__(value)),
    list: lambda value: [*list.__iter__(value)],
    dict: lambda value: {key: dict.__getitem__(value, key) for key in dict.__iter__(value)},
    set: lambda value: {*set.__iter__(value)},
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}


class Encoder:
    """The values of one message. `containers`: those in it that can change, in their order."""

    def __init__(self, of_object: Callable[[Any], list[Any]], originals: Iterable[Any] = ()) -> None:
        """of_object: JSON in place of what is not plain; originals: the containers of the message that this one
        answers."""
        self._of_object = of_object
        self.containers: list[Any] = []
        self._kept: list[Any] = [*originals]  # an id is only unique as long as its object exists
        self._places = {id(value): ["a", number] for number, value in enumerate(self._kept)}

    def encode(self, value: Any) -> Any:
        """JSON of a value. Errors: any that reading it raises."""
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            return value if abs(value) < MAX_PLAIN_INTEGER else ["i", hex(value)]
        if id(value) in self._places:
            return self._places[id(value)]
        if kind in _CONTAINERS or _is_array(value):
            self._kept.append(value)
            self._places[id(value)] = ["r", len(self.containers)]
            self.containers.append(value)
            return self.contents(value)
        if kind in _PARTS:
            tag, parts_of = _PARTS[kind]
            return self._made(tag, *parts_of(value))
        return self._other(value)

    def contents(self, value: Any) -> list[Any]:
        """JSON of a container that can change."""
        if _is_array(value):
            return ["np", _text(value.tobytes()), value.dtype.str, list(value.shape)]
        kind = type(value)
        items = value.items() if isinstance(value, dict) else value
        codes = [[*map(self.encode, item)] if isinstance(value, dict) else self.encode(item) for item in items]
        factory = TYPE_NAMES.get(value.default_factory) if kind is defaultdict else None
        return [_CONTAINERS[kind], codes, value.maxlen if kind is deque else factory]

    def _made(self, tag: str, *parts: Any) -> list[Any]:
        self._kept += parts
        return [tag, *map(self.encode, parts)]

    def _other(self, value: Any) -> Any:
        """JSON of a class, an exception, or an object of a subclass of something plain."""
        if isinstance(value, type):
            if value in TYPE_NAMES:
                return ["type", TYPE_NAMES[value]]
            if not issubclass(value, BaseException):
                return self._of_object(value)
            bases = [base for base in value.__bases__ if issubclass(base, BaseException)]
            return self._made("error class", str(value.__name__), str(value.__module__), *bases)
        if isinstance(value, BaseException):
            return self._error(value)
        if _is_of_numpy(value, "generic"):
            return self.encode(value.item())
        if isinstance(value, tuple):
            fields, items = getattr(type(value), "_fields", None), [*tuple.__iter__(value)]
            is_named = isinstance(fields, tuple) and len(fields) == len(items)
            return self._made("nt", type(value).__name__, fields, *items) if is_named else self._made("t", *items)
        for base, read in _READ.items():
            if isinstance(value, base):
                self._kept.append(plain := read(value))
                return self.encode(plain)
        if hasattr(type(value), "__next__"):
            items = [*islice(value, MAX_ITEMS + 1)]
            return self._made("items", len(items) > MAX_ITEMS, *items[:MAX_ITEMS])
        return self._of_object(value)

    def _error(self, error: BaseException) -> list[Any]:
        try:
            args = BaseException.__getattribute__(error, "args")
            own = {key: item for key, item in vars(error).items() if not key.startswith("_")}
            return self._made("error", type(error), args, str(str(error))[:1000], own)
        except Exception:  # of its own methods
            return self._made("error", type(error), (), "", {})


class Decoder:
    """The values of one message. `containers`: as in its encoder."""

    def __init__(self, object_of: Callable[[Any], Any] | None = None, originals: Iterable[Any] = ()) -> None:
        """object_of: what stands for the object of a code that `of_object` made; originals: as in the encoder."""
        self._object_of = object_of
        self._originals = [*originals]
        self.containers: list[Any] = []

    def decode(self, code: Any) -> Any:
        """The value. Errors: any, if it was not written by an encoder."""
        if not isinstance(code, list):
            return code
        tag, *rest = code
        if tag == "a":
            return self._originals[rest[0]]
        if tag == "r":
            return self.containers[rest[0]]
        if tag == "object" and self._object_of is not None:
            return self._object_of(rest[0])
        if tag not in _OF_TAG and tag != "np":
            return _MADE[tag](*map(self.decode, rest))
        value = _empty(tag, rest)
        self.containers.append(value)
        self.fill(value, code)
        return value

    def fill(self, value: Any, code: list[Any]) -> None:
        """Replace the contents of a container."""
        if code[0] == "np":
            value[...] = _array(code[2], code[1]).reshape(code[3])
            return
        is_mapping = isinstance(value, dict)
        items = [[*map(self.decode, item)] if is_mapping else self.decode(item) for item in code[1]]
        value.clear()
        if is_mapping:
            for key, item in items:
                value[key] = item
        else:
            value.update(items) if isinstance(value, set) else value.extend(items)


def _empty(tag: str, rest: list[Any]) -> Any:
    if tag == "np":
        return _array(rest[1], rest[0]).reshape(rest[2]).copy()
    if tag == "dd":
        return defaultdict(TYPES[rest[1]] if rest[1] else None)
    return deque(maxlen=rest[1]) if tag == "dq" else _OF_TAG[tag]()


def _items(is_cut: bool, items: Iterable[Any]) -> Iterator[Any]:
    yield from items
    if is_cut:
        raise ValueError(f"an iterator of the code has more than {MAX_ITEMS} items")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _at(kind: Any, text: str, fold: int) -> Any:
    return kind.fromisoformat(text).replace(fold=fold)


def _is_of_numpy(value: Any, name: str) -> bool:
    """Whether it is such an object, of a kind that consists of numbers or text."""
    kind = getattr(sys.modules.get("numpy"), name, None)
    return kind is not None and isinstance(value, kind) and _DTYPE.fullmatch(value.dtype.str) is not None


def _is_array(value: Any) -> bool:
    return _is_of_numpy(value, "ndarray") and type(value).__name__ == "ndarray"


def _array(kind: str, text: str) -> Any:
    if not _DTYPE.fullmatch(kind):
        raise ValueError(kind)
    import numpy

    return numpy.frombuffer(base64.b64decode(text), dtype=kind)


# A class of exceptions that the other process defines is made here again, for `except`.

_error_classes: dict[str, type[BaseException]] = {}


def _error_class(name: str, module: str, bases: tuple[Any, ...]) -> type[BaseException]:
    if module in _EXCEPTION_MODULES:
        kind = getattr(importlib.import_module(module), name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return kind
    if not all(issubclass(base, BaseException) for base in bases):
        raise ValueError(bases)
    key = json.dumps([name, module, *map(repr, bases)])
    if key not in _error_classes:
        members = {"_is_copy": True, "_text": "", "__str__": lambda error: error._text}
        members["__init__"] = lambda error, *args: None
        _error_classes[key] = type(name, bases, members)
    return _error_classes[key]


def _error(kind: Any, args: tuple[Any, ...], text: str, own: dict[str, Any]) -> BaseException:
    if not issubclass(kind, BaseException):
        raise ValueError(kind)
    try:
        error = kind(*args)
    except Exception:
        error = kind.__new__(kind)
        error.args = tuple(args)
    vars(error).update({key: value for key, value in own.items() if not key.startswith("_")})
    if is_copy(kind):
        error._text = str(text)
    return error


def is_copy(kind: type) -> bool:
    """Whether an exception's class was made for one of the other process."""
    return "_is_copy" in vars(kind)
