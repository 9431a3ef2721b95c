"""Rows of a file of questions, JSONL, CSV or Parquet: one after the other, never all of them in memory.

First station of a benchmark: what stands in the file, whatever its columns mean. Every text has a bound, and an error
names the file, the line and what is wrong with it. Standard library only, but for Parquet (pyarrow).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MAX_LINE_BYTES = 1_000_000
MAX_QUESTIONS = 1_000_000
MAX_COLUMNS = 500
MAX_UNPACKED_BYTES = 2**30  # of a Parquet file, as its own footer tells and as it turns out
PARQUET_BATCH = 256  # rows
SUFFIXES = (".jsonl", ".json", ".txt", ".csv", ".tsv", ".parquet")
DELIMITERS = (",", "\t", ";", "|")
PACKED = {
    b"PK\x03\x04": "a zip archive or a workbook",
    b"PK\x05\x06": "a zip archive",
    b"\x1f\x8b": "a gzip file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a rar archive",
    b"(\xb5/\xfd": "a zstd file",
}


class BenchmarkError(ValueError):
    """A benchmark file that cannot be used; the text says which file, which line and why."""

    is_held_out = False  # whether the held-out file is to blame, where there are two


class QuestionFileError(ValueError):
    """What is wrong with one line."""


class Source:
    """One file, under the name its user gave it. `share_read` tells how far it has been read, 0 to 1."""

    def __init__(self, path: Path, name: str = "") -> None:
        """Errors: BenchmarkError where it is no file of questions."""
        self.path, self.name = path, name or path.name
        self.kind = _kind_of(path, self.name)
        self.row_word = "row" if self.kind == "parquet" else "line"
        self.share_read = 0.0

    def rows(self, columns: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number (from 1: the line, in Parquet the row) and record; numbers are texts as they are written.

        columns: the only ones that Parquet has to decode; empty: all. Errors: BenchmarkError.
        """
        number = 0
        try:
            if self.kind == "parquet":
                for number, record in enumerate(self._parquet_rows(columns), start=1):
                    yield number, {name: _written(value) for name, value in record.items()}
            elif self.kind == "csv":
                yield from self._csv_rows()
            else:
                for number, line in numbered_lines(self.path, self):
                    yield number, decode_text(line)
        except QuestionFileError as error:
            raise BenchmarkError(f"{self.name}, {self.row_word} {number}: {error}") from None
        self.share_read = 1.0

    def _csv_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        csv.field_size_limit(MAX_LINE_BYTES)
        first = next(iter(text_lines(self.path, self)), (1, ""))[1]
        delimiter = max(DELIMITERS, key=first.count)
        reader = csv.reader((text for _, text in text_lines(self.path, self)), delimiter=delimiter, strict=True)
        header: list[str] = []
        try:
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if not header:
                    header = _header(cells)
                    continue
                if len(cells) > len(header):
                    raise QuestionFileError(f"{len(cells)} cells; the header has {len(header)}")
                yield reader.line_num, dict(zip(header, cells, strict=False))
        except csv.Error as error:
            raise BenchmarkError(f"{self.name}, line {reader.line_num}: not CSV ({error})") from None
        except QuestionFileError as error:
            raise BenchmarkError(f"{self.name}, line {reader.line_num}: {error}") from None

    def _parquet_rows(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise BenchmarkError(f"{self.name}: reading Parquet needs pyarrow: pip install pyarrow") from None
        try:
            file = parquet.ParquetFile(self.path, thrift_string_size_limit=2**24, thrift_container_size_limit=10**6)
            names = self._checked_columns(file)
            # A dot in a name would be read as a path into a nested column.
            selection = (
                None if not columns or any("." in name for name in columns) else [c for c in columns if c in names]
            )
            total, done, unpacked = file.metadata.num_rows, 0, 0
            for batch in file.iter_batches(batch_size=PARQUET_BATCH, columns=selection, use_threads=False):
                unpacked += batch.nbytes  # one text that is said once may stand in every row
                if unpacked > MAX_UNPACKED_BYTES:
                    raise BenchmarkError(f"{self.name}: unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MiB")
                yield from batch.to_pylist()
                done += batch.num_rows
                self.share_read = done / max(total, 1)
        except (MemoryError, OverflowError):
            raise BenchmarkError(f"{self.name}: unpacks to more than may be held in memory") from None
        except BenchmarkError:
            raise
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise BenchmarkError(f"{self.name}: not a sound Parquet file ({reason.rstrip('.')})") from None

    def _checked_columns(self, file: Any) -> list[str]:
        """The names of the columns. Error: BenchmarkError where the footer tells of more than is allowed."""
        footer, names = file.metadata, list(file.schema_arrow.names)
        if footer.num_rows > MAX_QUESTIONS:
            raise BenchmarkError(f"{self.name}: {footer.num_rows} rows, {MAX_QUESTIONS} at most")
        if len(names) > MAX_COLUMNS:
            raise BenchmarkError(f"{self.name}: {len(names)} columns, {MAX_COLUMNS} at most")
        if len(set(names)) < len(names):
            raise BenchmarkError(f"{self.name}: two columns have the same name")
        unpacked = sum(footer.row_group(index).total_byte_size for index in range(footer.num_row_groups))
        if unpacked > MAX_UNPACKED_BYTES:
            reason = f"unpacks to {unpacked / 2**20:.0f} MiB, {MAX_UNPACKED_BYTES // 2**20} at most"
            raise BenchmarkError(f"{self.name}: {reason}")
        return names


def _kind_of(path: Path, name: str) -> str:
    """jsonl, csv or parquet, by the first bytes and the name's ending. Error: BenchmarkError."""
    if not path.is_file():
        raise BenchmarkError(f"{name}: no such file")
    with open(path, "rb") as file:
        head = file.read(512)
    if not head:
        raise BenchmarkError(f"{name}: empty, there are no questions in it")
    if head.startswith(b"PAR1"):
        return "parquet"
    packed = next((what for sign, what in PACKED.items() if head.startswith(sign)), "")
    if packed or head[257:262] == b"ustar":
        raise BenchmarkError(f"{name}: {packed or 'a tar archive'}, not JSONL, CSV or Parquet: unpack it first")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BenchmarkError(f"{name}: UTF-16 text: save it as UTF-8")
    if b"\0" in head:
        raise BenchmarkError(f"{name}: zero bytes in it, so it is neither text nor Parquet")
    if name.lower().endswith(".parquet"):
        raise BenchmarkError(f"{name}: not a Parquet file (it does not begin with PAR1)")
    return "csv" if name.lower().endswith((".csv", ".tsv")) else "jsonl"


def text_lines(path: Path, source: Source | None = None) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and whole lines, ends of lines included. Errors: BenchmarkError."""
    name = source.name if source else path.name
    size = max(path.stat().st_size, 1)
    done = 0
    with open(path, "rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            done += len(raw)
            if source:
                source.share_read = done / size
            if len(raw) > MAX_LINE_BYTES:
                raise BenchmarkError(f"{name}, line {number}: longer than {MAX_LINE_BYTES} bytes")
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise BenchmarkError(f"{name}, line {number}: not UTF-8 (byte {error.start + 1})") from None


def numbered_lines(path: Path, source: Source | None = None) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and texts of the lines that are not blank. Errors: BenchmarkError."""
    if not path.is_file():
        raise BenchmarkError(f"{path}: no such file")
    for number, text in text_lines(path, source):
        if text.strip():
            yield number, text.rstrip("\r\n")


def _header(cells: list[str]) -> list[str]:
    """The names of a CSV file's columns; one without a name is called after its place. Error: Refused."""
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(cells, start=1)]
    if len(names) > MAX_COLUMNS:
        raise QuestionFileError(f"{len(names)} columns, {MAX_COLUMNS} at most")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise QuestionFileError(f"column {twice[:80]!r} stands there twice")
    return names


def _no_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        if key in record:
            raise QuestionFileError(f"key {key[:80]!r} stands there twice")
        record[key] = value
    return record


def _no_constants(text: str) -> Any:
    raise QuestionFileError(f"{text} is not a JSON number")


def decode_text(line: str) -> dict[str, Any]:
    """The JSON object of a line. Error: Refused."""
    try:
        # Numbers stay as they are written: 2.50 is not 2.5, and no number overflows.
        record = json.loads(
            line,
            object_pairs_hook=_no_repeated_keys,
            parse_constant=_no_constants,
            parse_int=str,
            parse_float=str,
        )
    except json.JSONDecodeError as error:
        raise QuestionFileError(f"not JSON (column {error.colno})") from None
    except RecursionError:
        raise QuestionFileError("nested too deeply") from None
    if not isinstance(record, dict):
        raise QuestionFileError(f"a JSON object is needed, not {kind_name(record)}")
    if len(record) > MAX_COLUMNS:
        raise QuestionFileError(f"{len(record)} keys, {MAX_COLUMNS} at most")
    return record


def _written(value: Any) -> Any:
    """A Parquet value as JSONL would have it: numbers as text, a whole float without its ".0". Error: Refused."""
    if isinstance(value, bool | str | None | dict):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise QuestionFileError(f"{value} is not a number")
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, list):
        return [_written(item) for item in value[:2]]  # one is a text, more are not
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None  # a picture: no text, and none is needed unless its column is chosen
    return str(value)


def kind_name(value: object) -> str:
    """What a value is, in words."""
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "a text or a number"}
    return names[type(value)]
