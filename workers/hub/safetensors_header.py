"""The headers of safetensors files, checked: parameter counts and shapes without loading weights.

The format: 8 bytes little-endian length, that many bytes of JSON, then the data of the tensors without gaps.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_HEADER_BYTES = 100_000_000
ITEM_BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "C64": 64}
ITEM_BITS |= {"F16": 16, "BF16": 16, "I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8}
ITEM_BITS |= {"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4}


class DamagedHeader(ValueError):
    """The file is not a valid safetensors file; the text says why."""


@dataclass
class WeightFiles:
    """Totals over a model's weight files. numbers: by dtype."""

    numbers: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0
    shapes: set[tuple[int, ...]] = field(default_factory=set)

    def add(self, path: Path) -> None:
        """Count one more file. Errors: DamagedHeader, OSError."""
        for dtype, shape in tensors(path).values():
            self.numbers[dtype] += math.prod(shape)
            self.shapes.add(shape)
        self.size_bytes += path.stat().st_size

    def facts(self) -> dict[str, Any]:
        """Parameter count, size and the most frequent dtype."""
        dtype = max(self.numbers, key=lambda name: self.numbers[name], default="")
        return {"num_parameters": self.numbers.total(), "weights_bytes": self.size_bytes, "dtype": dtype}


def tensors(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """dtype and shape of each tensor in a file, by name. Error: DamagedHeader."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise DamagedHeader("its header length is impossible")
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedHeader("its header is not JSON") from None
    if not isinstance(header, dict):
        raise DamagedHeader("its header is not an object")
    header.pop("__metadata__", None)
    entries = {}
    spans = []
    for name, entry in header.items():
        dtype, shape, begin, end = _tensor(name, entry)
        entries[name] = (dtype, shape)
        spans.append((begin, end))
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            raise DamagedHeader("its tensors overlap or leave gaps")
        position = end
    if position != size - 8 - length:
        raise DamagedHeader(f"its header lists {position:,} bytes of weights, the file has {size - 8 - length:,}")
    return entries


def _tensor(name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, first and last byte of one tensor. Error: DamagedHeader."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        is_whole = all(type(value) is int and value >= 0 for value in [*shape, begin, end])
        if not is_whole or len(shape) > 16 or (end - begin) * 8 != math.prod(shape) * ITEM_BITS[dtype]:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise DamagedHeader(f"the entry of tensor {name[:80]!r} is impossible") from None
    return dtype, tuple(shape), begin, end
