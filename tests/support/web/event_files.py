"""Reads TensorBoard's event files by their format, every checksum verified."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from workers.mirrors.tensorboard import masked_crc


def event_file_scalars(folder: Path) -> list[tuple[int, str, float]]:
    """(step, tag, value) of an event file, read by its format; every checksum is verified."""
    return [value for event in _events(folder) for value in _values(event)]


def event_file_tables(folder: Path) -> list[tuple[int, list[list[str]]]]:
    """(step, rows of texts) of its tables of rollouts, the names of the columns first."""
    return [table for event in _events(folder) for table in _tables(event)]


def _events(folder: Path) -> list[bytes]:
    (path,) = folder.glob("*/events.out.tfevents.*")
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack_from("<Q", data)
        event = data[12 : 12 + length]
        assert struct.unpack_from("<I", data, 8)[0] == masked_crc(data[:8])
        assert struct.unpack_from("<I", data, 12 + length)[0] == masked_crc(event)
        found.append(event)
        data = data[16 + length :]
    return found


def _fields(data: bytes) -> list[tuple[int, Any]]:
    """(number, value) of a protocol buffer's fields."""
    found, place = [], 0

    def varint() -> int:
        nonlocal place
        number = shift = 0
        while True:
            byte = data[place]
            place += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while place < len(data):
        key = varint()
        size = {0: None, 1: 8, 5: 4}.get(key & 7, 0)
        if size is None:
            found.append((key >> 3, varint()))
            continue
        size = size or varint()
        found.append((key >> 3, data[place : place + size]))
        place += size
    return found


def _values(event: bytes) -> list[tuple[int, str, float]]:
    fields = dict(_fields(event))
    if 5 not in fields:
        return []
    rows = [dict(_fields(value)) for _, value in _fields(fields[5])]
    return [(fields[2], row[1].decode(), struct.unpack("<f", row[2])[0]) for row in rows if 2 in row]


def _tables(event: bytes) -> list[tuple[int, list[list[str]]]]:
    fields = dict(_fields(event))
    rows = [dict(_fields(value)) for _, value in _fields(fields.get(5, b""))]
    tables = []
    for tensor in [_fields(row[8]) for row in rows if row.get(1) == b"rollouts"]:
        cells = [cell.decode() for number, cell in tensor if number == 8]
        (shape,) = [shape for number, shape in tensor if number == 2]
        height, width = [dict(_fields(size))[1] for _, size in _fields(shape)]
        assert height * width == len(cells)
        tables.append((fields[2], [cells[place : place + width] for place in range(0, len(cells), width)]))
    return tables
