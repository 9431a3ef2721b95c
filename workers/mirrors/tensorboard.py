"""TensorBoard: an event file for each run, in the format of its own writers.

A record is length, masked CRC-32C of the length, an Event, and its masked CRC-32C. Fields of Event and Summary:
tensorboard/compat/proto/event.proto and summary.proto. The file is cut to its last acknowledged size when it is opened
again, so that no value is in it twice.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path

from workers.contract.mirrored_rows import COLUMNS, TABLE, MirroredRun, Row
from workers.mirrors.destination import Destination

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reversed
_DT_STRING = 7
_DATA_CLASS_TENSOR = 2


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (_POLYNOMIAL if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and offset as in record files."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _text(key: int, data: bytes) -> bytes:
    return _varint(key << 3 | 2) + _varint(len(data)) + data


def record(event: bytes) -> bytes:
    """A record of the file."""
    length = struct.pack("<Q", len(event))
    return length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event))


def version_event(time: float) -> bytes:
    """The first event of every file."""
    return struct.pack("<Bd", 1 << 3 | 1, time) + _text(3, b"brain.Event:2")


def _plain(value: object) -> bytes:
    """A text as a block of code in Markdown, which the text page draws: no link and no picture of it is one."""
    return "\n".join(f"    {line}" for line in str(value).split("\n")).encode()


def text_value(tag: str, cells: list[bytes], sizes: tuple[int, ...]) -> bytes:
    """A Summary.Value of the text page: a tensor of texts in Markdown, of one text or (rows, columns)."""
    shape = b"".join(_text(2, _varint(1 << 3) + _varint(size)) for size in sizes)
    tensor = _varint(1 << 3) + _varint(_DT_STRING) + _text(2, shape) + b"".join(_text(8, cell) for cell in cells)
    metadata = _text(1, _text(1, b"text")) + _varint(4 << 3) + _varint(_DATA_CLASS_TENSOR)
    return _text(1, tag.encode()) + _text(8, tensor) + _text(9, metadata)


def table_value(tag: str, columns: tuple[str, ...], rows: Iterable[Iterable[object]]) -> bytes:
    """A text_value of a table: the names of the columns, then plain texts."""
    cells = [name.encode() for name in columns] + [_plain("" if one is None else one) for row in rows for one in row]
    return text_value(tag, cells, (len(cells) // len(columns), len(columns)))


def run_event(run: MirroredRun) -> bytes:
    """The settings of a run, and a link to its page here."""
    summary = _text(1, table_value("hacrl/settings", ("setting", "value"), run.settings.items()))
    if run.url:
        summary += _text(1, text_value("hacrl/url", [f"<{run.url}>".encode()], ()))
    return struct.pack("<Bd", 1 << 3 | 1, run.created) + _text(5, summary)


def _float32(value: float) -> bytes:
    """The nearest 32-bit number: infinity beyond 3.4e38."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def row_event(row: Row) -> bytes:
    """The values of a step, which are stored as 32-bit numbers, and its rollouts."""
    key = _varint(2 << 3 | 5)
    summary = b"".join(_text(1, _text(1, name.encode()) + key + _float32(value)) for name, value in row.values.items())
    if row.rollouts:
        summary += _text(1, table_value(TABLE, COLUMNS, row.table))
    return struct.pack("<Bd", 1 << 3 | 1, row.time) + _varint(2 << 3) + _varint(row.step) + _text(5, summary)


class TensorBoard(Destination):
    """state: name and size of the file."""

    place = "TensorBoard"

    def open(self) -> None:
        run, state = self.run, self.state
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.name).strip("-.")[:60] or "run"
        folder = self.folder / f"{name}-{run.id[:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / str(state.get("file") or f"events.out.tfevents.{int(run.created)}.hacrl")
        size = int(state.get("size") or 0)
        is_there = size > 0 and path.is_file() and path.stat().st_size >= size
        self._file = open(path, "r+b" if is_there else "w+b")  # noqa: SIM115 - closed in close()
        if is_there:
            self._file.truncate(size)
            self._file.seek(size)
        else:  # a new file, or one that somebody removed
            self.after = 0
            self._file.write(record(version_event(run.created)) + record(run_event(run)))
        self._store()

    def _store(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self.state = {"file": Path(self._file.name).name, "size": self._file.tell()}

    def send(self, rows: list[Row]) -> None:
        self._file.write(b"".join(record(row_event(row)) for row in rows))
        self._store()

    def close(self, status: str) -> None:
        self._file.close()
