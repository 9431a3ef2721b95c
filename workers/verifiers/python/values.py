"""Values as JSON between the process of the tests and the process of the solution.

Data is copied: numbers, text, containers, dates, arrays. Only the data of an object of a subclass is read, so that a
number or a list is one, whatever its methods say. Everything else stays in its process, and the other one gets a
handle (`workers.verifiers.python.peer`). Errors of `decode` mean that the other process broke the rules.
"""

from __future__ import annotations

import base64
import builtins
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_PLAIN_INTEGER = 2**53
TYPES: dict[str, type] = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}
TYPES |= {
    kind.__name__: kind
    for kind in (Counter, OrderedDict, defaultdict, deque, date, datetime, time, timedelta, timezone, Decimal, Fraction)
}
TYPE_NAMES: dict[Any, str] = {kind: name for name, kind in TYPES.items()}
_DTYPE = re.compile(r"[<>|=]?[biufcSUmM?]\d*(\[\w+\])?")
_OF_TAG: dict[str, Any] = {
    "l": list, "d": dict, "s": set, "ba": bytearray, "dq": deque, "od": OrderedDict, "ct": Counter
}  # fmt: skip
_CONTAINERS = {kind: tag for tag, kind in _OF_TAG.items()}


class Encoder:
    """The values of one message. `containers`: the mutable ones in it, in their order."""

    def __init__(self, export: Callable[[Encoder, Any], Any], originals: Iterable[Any] = ()) -> None:
        """export: of what is no data; originals: the containers of the message that this one answers."""
        self._export = export
        self.containers: list[Any] = []
        self._kept: list[Any] = [*originals]  # an id is only unique as long as its object exists
        self._places = {id(value): ["a", number] for number, value in enumerate(self._kept)}

    def encode(self, value: Any) -> Any:
        """JSON of a value."""
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            return value if abs(value) < MAX_PLAIN_INTEGER else ["i", hex(value)]
        if id(value) in self._places:
            return self._places[id(value)]
        if kind in _CONTAINERS or kind is defaultdict or _is_array(value):
            self._kept.append(value)
            self._places[id(value)] = ["r", len(self.containers)]
            self.containers.append(value)
            return self.contents(value)
        simple = self._simple(value, kind)
        return simple if simple is not None else self._export(self, value)

    def contents(self, value: Any) -> list[Any]:
        """JSON of a mutable container."""
        kind = type(value)
        if kind is bytearray:
            return ["ba", _text(value)]
        if _is_array(value):
            return ["np", value.dtype.str, list(value.shape), _text(value.tobytes())]
        if kind in (list, set, deque):
            items = [self.encode(item) for item in value]
            return [_CONTAINERS[kind], items, value.maxlen] if kind is deque else [_CONTAINERS[kind], items]
        pairs = [[self.encode(key), self.encode(item)] for key, item in value.items()]
        if kind is defaultdict:
            return ["dd", pairs, TYPE_NAMES.get(value.default_factory, "")]
        return [_CONTAINERS[kind], pairs]

    def _simple(self, value: Any, kind: type) -> list[Any] | Any:
        """JSON of a value that cannot change; None if it is no data."""
        if kind is tuple:
            return ["t", [self.encode(item) for item in value]]
        if kind is frozenset:
            return ["f", [self.encode(item) for item in value]]
        if kind is bytes:
            return ["b", _text(value)]
        if kind is complex:
            return ["c", value.real, value.imag]
        if kind is range:
            return ["range", value.start, value.stop, value.step]
        if kind is slice:
            return ["slice", *map(self.encode, (value.start, value.stop, value.step))]
        if value is Ellipsis or value is NotImplemented:
            return ["one", repr(value)]
        if kind is Decimal:
            return ["dec", str(value)]
        if kind is Fraction:
            return ["frac", hex(value.numerator), hex(value.denominator)]
        if kind in (date, datetime, time, timedelta):
            return _moment(value, kind)
        if isinstance(value, type) and value in TYPE_NAMES:
            return ["type", TYPE_NAMES[value]]
        if _is_scalar(value):
            return ["ng", value.dtype.str, _text(value.tobytes())]
        return self._of_subclass(value)

    def _of_subclass(self, value: Any) -> Any:
        """JSON of the data of an object whose class is derived from one of data; None for any other object."""
        fields = getattr(type(value), "_fields", None)
        if isinstance(value, tuple):
            items = list(tuple.__iter__(value))
            self._kept.append(items)
            if isinstance(fields, tuple) and len(fields) == len(items):
                return ["nt", type(value).__name__, [*fields], [self.encode(item) for item in items]]
            return ["t", [self.encode(item) for item in items]]
        for base, read in _READ.items():
            if isinstance(value, base):
                plain = read(value)
                self._kept.append(plain)
                return self.encode(plain)
        return None


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


class Decoder:
    """The values of one message. `containers`: as in its encoder."""

    def __init__(self, import_: Callable[[Decoder, list[Any]], Any], originals: Iterable[Any] = ()) -> None:
        """import_: of what is no data; originals: the containers of the message that this one answers."""
        self._import = import_
        self._originals = [*originals]
        self.containers: list[Any] = []

    def decode(self, code: Any) -> Any:
        """The value. Errors: any, if it was not written by an encoder."""
        if not isinstance(code, list):
            return code
        tag, *rest = code
        if tag in _OF_TAG or tag in ("dd", "np"):
            value = self._empty(tag, rest)
            self.containers.append(value)
            self.fill(value, code)
            return value
        if tag == "a":
            return self._originals[rest[0]]
        if tag == "r":
            return self.containers[rest[0]]
        read = _OF_CODE.get(tag)
        return read(self, *rest) if read else self._import(self, code)

    @staticmethod
    def _empty(tag: str, rest: list[Any]) -> Any:
        if tag == "np":
            return _array(rest[0], rest[2]).reshape(rest[1]).copy()
        if tag == "dd":
            return defaultdict(TYPES[rest[1]] if rest[1] else None)
        return deque(maxlen=rest[1]) if tag == "dq" else _OF_TAG[tag]()

    def fill(self, value: Any, code: list[Any]) -> None:
        """Replace the contents of a container."""
        tag, items = code[0], code[1]
        if tag == "np":
            value[...] = _array(items, code[3]).reshape(code[2])
        elif tag == "ba":
            value[:] = _bytes(items)
        elif tag in ("l", "s", "dq"):
            items = [self.decode(item) for item in items]
            value.clear()
            value.update(items) if tag == "s" else value.extend(items)
        else:
            pairs = [(self.decode(key), self.decode(item)) for key, item in items]
            value.clear()
            for key, item in pairs:
                value[key] = item

    def _items(self, codes: list[Any]) -> list[Any]:
        return [self.decode(code) for code in codes]

    def _named_tuple(self, name: str, fields: list[str], codes: list[Any]) -> Any:
        return namedtuple(name, fields)(*self._items(codes))  # checks the names


_OF_CODE: dict[str, Callable[..., Any]] = {
    "i": lambda decoder, text: int(text, 16),
    "t": lambda decoder, codes: tuple(decoder._items(codes)),
    "f": lambda decoder, codes: frozenset(decoder._items(codes)),
    "b": lambda decoder, text: _bytes(text),
    "c": lambda decoder, real, imaginary: complex(real, imaginary),
    "range": lambda decoder, *bounds: range(*bounds),
    "slice": lambda decoder, *bounds: slice(*decoder._items(bounds)),
    "one": lambda decoder, name: {"Ellipsis": ..., "NotImplemented": NotImplemented}[name],
    "dec": lambda decoder, text: Decimal(text),
    "frac": lambda decoder, above, below: Fraction(int(above, 16), int(below, 16)),
    "date": lambda decoder, *numbers: date(*numbers),
    "datetime": lambda decoder, numbers, fold, zone: datetime(*numbers).replace(fold=fold, tzinfo=_zone(zone)),
    "time": lambda decoder, numbers, fold, zone: time(*numbers).replace(fold=fold, tzinfo=_zone(zone)),
    "timedelta": lambda decoder, *numbers: timedelta(*numbers),
    "type": lambda decoder, name: TYPES[name],
    "ng": lambda decoder, kind, text: _array(kind, text)[0],
    "nt": Decoder._named_tuple,
}


def _text(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _moment(value: Any, kind: type) -> list[Any]:
    if kind is timedelta:
        return ["timedelta", value.days, value.seconds, value.microseconds]
    if kind is date:
        return ["date", value.year, value.month, value.day]
    numbers = [value.hour, value.minute, value.second, value.microsecond]
    offset = value.utcoffset()
    rest = [value.fold, None if offset is None else offset.total_seconds()]
    if kind is time:
        return ["time", numbers, *rest]
    return ["datetime", [value.year, value.month, value.day, *numbers], *rest]


def _zone(seconds: float | None) -> timezone | None:
    return None if seconds is None else timezone(timedelta(seconds=seconds))


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and _DTYPE.fullmatch(value.dtype.str) is not None


def _is_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and _DTYPE.fullmatch(value.dtype.str) is not None


def _array(kind: str, text: str) -> Any:
    if not _DTYPE.fullmatch(kind):
        raise ValueError(kind)
    import numpy

    return numpy.frombuffer(_bytes(text), dtype=kind)
