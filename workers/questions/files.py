"""Rows of a question file (JSONL, CSV or Parquet), one at a time; the file is never in memory as a whole.

The first step of a benchmark's import. Every text is bounded, and an error names the file, the line and the problem.
Standard library only, except for Parquet (pyarrow).
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
MAX_UNPACKED_BYTES = 2**30  # of a Parquet file, by its footer and as measured
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
    """A benchmark file that cannot be used; the text names the file and the line, and says why."""

    is_held_out = False  # whether the error is in the held-out file


class QuestionFileError(ValueError):
    """A problem of one line, without its place."""


class Source:
    """One file, with the name that errors use. share_read: how much of it has been read, 0 to 1."""

    def __init__(self, path: Path, name: str = "") -> None:
        """Error: BenchmarkError if this cannot be a question file."""
        self.path, self.name = path, name or path.name
        self.kind = _kind_of(path, self.name)
        self.row_word = "row" if self.kind == "parquet" else "line"
        self.share_read = 0.0

    def rows(self, columns: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
        """(Line number from 1, record); in Parquet the row number. Numbers are texts, as written in the file.

        columns: those that are decoded from Parquet; empty: all. Error: BenchmarkError.
        """
        number = 0
        try:
            if self.kind == "parquet":
                for number, record in enumerate(self._parquet_rows(columns), start=1):
                    yield number, {name: _as_in_json(value) for name, value in record.items()}
            elif self.kind == "csv":
                yield from self._csv_rows()
            else:
                for number, line in self._text_lines():
                    if line.strip():
                        yield number, _decoded(line.rstrip("\r\n"))
        except QuestionFileError as error:
            raise BenchmarkError(f"{self.name}, {self.row_word} {number}: {error}") from None
        self.share_read = 1.0

    def _text_lines(self) -> Iterator[tuple[int, str]]:
        """Line numbers from 1, and lines with their line ends. Error: BenchmarkError."""
        size = max(self.path.stat().st_size, 1)
        with open(self.path, "rb") as file:
            for number, raw in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
                where = f"{self.name}, line {number}"
                self.share_read = file.tell() / size
                if len(raw) > MAX_LINE_BYTES:
                    raise BenchmarkError(f"{where}: longer than {MAX_LINE_BYTES} bytes")
                try:
                    yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise BenchmarkError(f"{where}: not UTF-8 (byte {error.start + 1}): save it as UTF-8") from None

    def _csv_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        csv.field_size_limit(MAX_LINE_BYTES)
        first = next((text for _, text in self._text_lines() if text.strip()), "")
        delimiter = max(DELIMITERS, key=first.count)
        reader = csv.reader((text for _, text in self._text_lines()), delimiter=delimiter, strict=True)
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
            # pyarrow reads a dot in a name as a path into a nested column.
            selects = columns and not any("." in name for name in columns)
            selection = [name for name in columns if name in names] if selects else None
            total, done, unpacked = file.metadata.num_rows, 0, 0
            for batch in file.iter_batches(batch_size=PARQUET_BATCH, columns=selection, use_threads=False):
                unpacked += batch.nbytes  # a text stored once may be the value of every row
                if unpacked > MAX_UNPACKED_BYTES:
                    raise BenchmarkError(
                        f"{self.name}: unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MiB: split it"
                    )
                yield from batch.to_pylist()
                done += batch.num_rows
                self.share_read = done / max(total, 1)
        except (MemoryError, OverflowError):
            raise BenchmarkError(f"{self.name}: unpacks to more than the allowed memory: split it") from None
        except BenchmarkError:
            raise
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise BenchmarkError(f"{self.name}: a damaged Parquet file ({reason.rstrip('.')})") from None

    def _checked_columns(self, file: Any) -> list[str]:
        """The names of the columns. Error: BenchmarkError if the footer exceeds a limit."""
        footer, names = file.metadata, list(file.schema_arrow.names)
        if footer.num_rows > MAX_QUESTIONS:
            raise BenchmarkError(f"{self.name}: {footer.num_rows} rows, {MAX_QUESTIONS} at most: split it")
        if len(names) > MAX_COLUMNS:
            raise BenchmarkError(f"{self.name}: {len(names)} columns, {MAX_COLUMNS} at most")
        if len(set(names)) < len(names):
            raise BenchmarkError(f"{self.name}: two columns have the same name: rename one")
        unpacked = sum(footer.row_group(index).total_byte_size for index in range(footer.num_row_groups))
        if unpacked > MAX_UNPACKED_BYTES:
            most = MAX_UNPACKED_BYTES // 2**20
            raise BenchmarkError(f"{self.name}: unpacks to {unpacked / 2**20:.0f} MiB, {most} at most: split it")
        return names


def _kind_of(path: Path, name: str) -> str:
    """jsonl, csv or parquet, by the first bytes and the suffix. Error: BenchmarkError."""
    if not path.is_file():
        raise BenchmarkError(f"{name}: no such file")
    with open(path, "rb") as file:
        head = file.read(512)
    if not head:
        raise BenchmarkError(f"{name}: the file is empty")
    if head.startswith(b"PAR1"):
        return "parquet"
    packed = next((what for sign, what in PACKED.items() if head.startswith(sign)), "")
    if packed or head[257:262] == b"ustar":
        raise BenchmarkError(f"{name}: {packed or 'a tar archive'}, not JSONL, CSV or Parquet: unpack it first")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BenchmarkError(f"{name}: UTF-16 text: save it as UTF-8")
    if b"\0" in head:
        raise BenchmarkError(f"{name}: contains zero bytes, so it is neither text nor Parquet")
    if name.lower().endswith(".parquet"):
        raise BenchmarkError(f"{name}: not a Parquet file (it does not begin with PAR1)")
    return "csv" if name.lower().endswith((".csv", ".tsv")) else "jsonl"


def _header(cells: list[str]) -> list[str]:
    """The names of a CSV file's columns; one without a name is numbered. Error: QuestionFileError."""
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(cells, start=1)]
    if len(names) > MAX_COLUMNS:
        raise QuestionFileError(f"{len(names)} columns, {MAX_COLUMNS} at most")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise QuestionFileError(f"column {twice[:80]!r} appears twice: rename one")
    return names


def _no_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        if key in record:
            raise QuestionFileError(f"key {key[:80]!r} appears twice: remove one")
        record[key] = value
    return record


def _no_constants(text: str) -> Any:
    raise QuestionFileError(f"{text} is not a JSON number")


def _decoded(line: str) -> dict[str, Any]:
    """The JSON object of a line, its numbers as text. Error: QuestionFileError."""
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
        raise QuestionFileError(f"must be a JSON object, not {kind_name(record)}")
    if len(record) > MAX_COLUMNS:
        raise QuestionFileError(f"{len(record)} keys, {MAX_COLUMNS} at most")
    return record


def _as_in_json(value: Any) -> Any:
    """A Parquet value as in JSONL: numbers as text, whole floats without ".0". Error: QuestionFileError."""
    if isinstance(value, bool | str | None | dict):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise QuestionFileError(f"{value} is not a number")
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, list):
        return [_as_in_json(item) for item in value[:2]]  # enough to tell one item from several
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None  # a picture: an error only if its column is chosen
    return str(value)


def kind_name(value: object) -> str:
    """The kind of a JSON value, in words."""
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "a text or a number"}
    return names[type(value)]
