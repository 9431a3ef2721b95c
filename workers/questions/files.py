"""Rows of a question file (JSONL, CSV or Parquet), one at a time; only a JSON list is in memory as a whole.

The first step of a benchmark's import. Every text is bounded, and an error names the file, the line and the problem.
Standard library only, except for Parquet (pyarrow).
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from workers.contract.spec.data import MAX_COLUMN_NAME

MAX_LINE_BYTES = 1_000_000
MAX_QUESTIONS = 1_000_000
MAX_COLUMNS = 500
MAX_DOCUMENT_BYTES = 64 * 2**20  # of a file that is one JSON value, which is read as a whole
HEAD_BYTES = 2**16
MAX_LISTED = 4  # objects of a list that have dotted names
MAX_DEPTH = 4  # of dotted names
MAX_UNPACKED_BYTES = 2**30  # of a Parquet file, by its footer and as measured
PARQUET_BATCH = 256  # rows
SUFFIXES = (".jsonl", ".json", ".txt", ".csv", ".tsv", ".parquet")
DELIMITERS = (",", "\t", ";", "|")
_SEPARATOR = re.compile(r'"?sep=(.)"?[,;\t|]*')  # the first line of a spreadsheet's CSV
_QUOTED = re.compile(r'"[^"]*"')
ROW_LISTS = ("data", "train", "rows", "examples", "questions", "problems", "items", "instances", "test")
ROLES = {"developer": "system", "human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant"}
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


Odd = Callable[[int, QuestionFileError], None]  # the number of a row, and why it cannot be used


class Source:
    """One file, with the name that errors use. share_read: how much of it has been read, 0 to 1."""

    def __init__(self, path: Path, name: str = "") -> None:
        """Error: BenchmarkError if this cannot be a question file."""
        self.path, self.name = path, name or path.name
        self.kind = _kind_of(path, self.name)
        self.row_word = "row" if self.kind == "parquet" else "line"
        self.share_read = 0.0

    def rows(self, columns: Sequence[str] = (), odd: Odd | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """(Line number from 1, record); in Parquet the row number. Numbers are texts, as written in the file.

        A value in a nested object is also there under its dotted name, such as `reward_model.ground_truth`.
        columns: those that are decoded from Parquet; empty: all.  odd: is told of each row that cannot be read, and
        the rows after it follow; without it such a row is an error. Error: BenchmarkError.
        """
        refuse = odd or self._refuse
        for number, record in self._records(columns, refuse):
            if isinstance(record, QuestionFileError):
                refuse(number, record)
            else:
                yield number, with_dotted_names(record)
        self.share_read = 1.0

    def _refuse(self, number: int, error: QuestionFileError) -> None:
        raise BenchmarkError(f"{self.name}, {self.row_word} {number}: {error}")

    def _records(self, columns: Sequence[str], refuse: Odd) -> Iterator[tuple[int, dict[str, Any] | QuestionFileError]]:
        if self.kind == "parquet":
            yield from enumerate(self._parquet_rows(columns), start=1)
        elif self.kind == "csv":
            yield from self._csv_rows(refuse)
        elif (items := self._document()) is not None:
            self.row_word = "item"
            for number, item in enumerate(items, start=1):
                yield number, _checked_object(item)
        else:
            for number, line in self._text_lines(refuse):
                if line.strip():
                    yield number, _decoded(line)

    def _text_lines(self, refuse: Odd) -> Iterator[tuple[int, str]]:
        """Line numbers from 1, and lines with their line ends; `refuse` is told of those that are no text."""
        for number, raw in enumerate(self._raw_lines(), start=1):
            if len(raw) > MAX_LINE_BYTES:
                refuse(number, QuestionFileError(f"longer than {MAX_LINE_BYTES} bytes"))
                continue
            try:
                yield number, raw.decode("utf-8-sig")  # joined files have a byte order mark in the middle
            except UnicodeDecodeError as error:
                refuse(number, QuestionFileError(f"not UTF-8 (byte {error.start + 1}): save it as UTF-8"))

    def _raw_lines(self) -> Iterator[bytes]:
        """Lines; of one that is too long, only its beginning. Old spreadsheets end lines by CR alone."""
        size = max(self.path.stat().st_size, 1)
        with open(self.path, "rb") as file:
            head = file.read(HEAD_BYTES)
        if b"\r" in head.rstrip() and b"\n" not in head:
            with open(self.path, encoding="latin-1", newline="\r") as text:
                for line in iter(lambda: text.readline(MAX_LINE_BYTES + 1), ""):
                    yield line.encode("latin-1").replace(b"\r", b"\n")
            return
        with open(self.path, "rb") as file:
            for raw in iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""):
                rest = raw
                while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                    rest = file.readline(MAX_LINE_BYTES + 1)
                self.share_read = file.tell() / size
                yield raw

    def _csv_rows(self, refuse: Odd) -> Iterator[tuple[int, dict[str, Any] | QuestionFileError]]:
        """A quote that is never closed spoils its own line only: reading goes on with the next one."""
        csv.field_size_limit(MAX_LINE_BYTES)
        lines = self._text_lines(refuse)
        again: deque[tuple[int, str]] = deque()  # lines that a broken row took
        header: list[str] = []
        delimiter = ""
        while (first := again.popleft() if again else next(lines, None)) is not None:
            if not first[1].strip():
                continue
            if not delimiter:
                named = _SEPARATOR.fullmatch(first[1].strip("\r\n"))
                delimiter = named[1] if named else max(DELIMITERS, key=_QUOTED.sub("", first[1]).count)
                if named:
                    continue
            taken = [first]
            try:
                cells = next(csv.reader(_texts(taken, again, lines), delimiter=delimiter, strict=True))
                if not any(cell.strip() for cell in cells):
                    continue
                if not header:
                    header = _header(cells)
                    continue
                if len(cells) > len(header):
                    raise QuestionFileError(f"{len(cells)} cells; the header has {len(header)}")
                yield taken[-1][0], dict(zip(header, cells, strict=False))
            except (csv.Error, QuestionFileError) as error:
                again.extendleft(reversed(taken[1:]))
                cells = first[1].rstrip("\r\n").split("\t")
                if header and delimiter == "\t" and len(cells) == len(header):  # a quote is a letter there
                    yield first[0], dict(zip(header, cells, strict=True))
                    continue
                problem = QuestionFileError(f"not CSV ({error})") if isinstance(error, csv.Error) else error
                if not header:
                    raise BenchmarkError(f"{self.name}, line {first[0]}: {problem}") from None
                yield first[0], problem

    def _document(self) -> list[Any] | None:
        """The rows of a file that is one JSON value; None if each line is one. Error: BenchmarkError."""
        with open(self.path, "rb") as file:
            line = file.readline(MAX_LINE_BYTES + 1).removeprefix(codecs.BOM_UTF8).strip()
            while not line and (more := file.readline(MAX_LINE_BYTES + 1)):
                line = more.strip()
            rest = file.read(HEAD_BYTES).strip()
        is_whole = _is_json(line)
        if not line.startswith((b"[", b"{")) or (is_whole and rest):
            return None
        if self.path.stat().st_size > MAX_DOCUMENT_BYTES:
            if line.startswith(b"{"):
                return None
            text = f"one JSON list of more than {MAX_DOCUMENT_BYTES // 2**20} MiB: write one object a line (JSONL)"
            raise BenchmarkError(f"{self.name}: {text}")
        try:
            value = _loads(self.path.read_bytes().decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            if line.startswith(b"{"):
                return None
            raise BenchmarkError(f"{self.name}: not UTF-8 (byte {error.start + 1}): save it as UTF-8") from None
        except QuestionFileError as error:
            if line.startswith(b"{"):
                return None
            raise BenchmarkError(f"{self.name}: {error}") from None
        items = value if isinstance(value, list) else _rows_of_object(value)
        return None if is_whole and items == [value] else items

    def _parquet_rows(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise BenchmarkError(f"{self.name}: reading Parquet needs pyarrow: pip install pyarrow") from None
        try:
            file = parquet.ParquetFile(self.path, thrift_string_size_limit=2**24, thrift_container_size_limit=10**6)
            names = self._checked_columns(file)
            wanted = {top for name in columns if (top := _top_column(name, names))}
            # pyarrow reads a dot in a name as a path into a nested column.
            selection = None if any("." in name for name in wanted) else sorted(wanted, key=names.index) or None
            types = {field.name: field.type for field in file.schema_arrow}
            total, done, unpacked = file.metadata.num_rows, 0, 0
            for batch in file.iter_batches(batch_size=PARQUET_BATCH, columns=selection, use_threads=False):
                unpacked += batch.nbytes  # a text stored once may be the value of every row
                if unpacked > MAX_UNPACKED_BYTES:
                    raise BenchmarkError(
                        f"{self.name}: unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MiB: split it"
                    )
                for record in batch.to_pylist():
                    yield {name: _as_in_json(value, types[name]) for name, value in record.items()}
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
        if head[:2].count(0) == 1:
            raise BenchmarkError(f"{name}: UTF-16 text: save it as UTF-8")
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


class _Problem:
    """In place of a value that JSON does not allow: the rows beside it can be read."""

    def __init__(self, text: str) -> None:
        self.text = text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        record[key] = _Problem(f"key {key[:80]!r} appears twice: remove one") if key in record else value
    return record


def _loads(text: str) -> Any:
    """A JSON value, its numbers as text: 2.50 is not 2.5, and no number overflows. Error: QuestionFileError."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=lambda name: _Problem(f"{name} is not a JSON number"),
            parse_int=str,
            parse_float=str,
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        cause = f": {error.msg[0].lower()}{error.msg[1:]}"
        if error.msg.startswith("Extra data"):
            cause = ": more follows after its first value"
        elif text[error.pos : error.pos + 1] == "'":
            cause = ": it has single quotes, as Python writes it"
        raise QuestionFileError(f"not JSON ({place}{cause})") from None
    except RecursionError:
        raise QuestionFileError("nested too deeply") from None


def _is_json(line: bytes) -> bool:
    try:
        _loads(line.decode())
    except (QuestionFileError, UnicodeDecodeError):
        return False
    return True


def _decoded(line: str) -> dict[str, Any] | QuestionFileError:
    """The JSON object of a line, or why there is none."""
    try:
        return _checked_object(_loads(line.strip()))
    except QuestionFileError as error:
        return error


def _checked_object(record: Any) -> dict[str, Any] | QuestionFileError:
    values: list[Any] = [record]
    for value in values:  # grows
        if isinstance(value, _Problem):
            return QuestionFileError(value.text)
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not isinstance(record, dict):
        return QuestionFileError(f"must be a JSON object, not {kind_name(record)}")
    if len(record) > MAX_COLUMNS:
        return QuestionFileError(f"{len(record)} keys, {MAX_COLUMNS} at most")
    return record


def _rows_of_object(value: dict[str, Any]) -> list[Any]:
    """The rows in one JSON object: a list of objects in it, or its columns (lists, or pandas's objects by row)."""
    lists = [key for key, items in value.items() if is_list_of_objects(items) and not is_messages(items)]
    names = ROW_LISTS if len(value) > 1 else tuple(value)
    if key := next((name for name in names if name in lists), ""):
        return list(value[key])
    columns = [[*one.values()] if isinstance(one, dict) else one for one in value.values()]
    keys = {tuple(one) if isinstance(one, dict) else None for one in value.values()}
    if (
        len(columns) > 1
        and len(keys) == 1
        and all(isinstance(one, list) and len(one) == len(columns[0]) > 0 for one in columns)
    ):
        return [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]
    return [value]


def is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def is_messages(value: Any) -> bool:
    """Whether a value is a conversation: messages with `role` and `content`, or `from` and `value`."""
    return is_list_of_objects(value) and all(
        {"role", "content"} <= set(m) or {"from", "value"} <= set(m) for m in value
    )


def role_of(message: dict[str, Any]) -> str:
    """system, user or assistant, under the other names that they have; any other role as it is."""
    role = message["role"] if "role" in message else message.get("from")
    return ROLES.get(role, role) if isinstance(role, str) else ""


def text_of_message(message: dict[str, Any]) -> str | None:
    """Its text; parts of text are joined. None if a part is no text."""
    content = message["content"] if "content" in message else message.get("value")
    if isinstance(content, list):
        parts = [one.get("text") if isinstance(one, dict) else one for one in content]
        texts = [one for one in parts if isinstance(one, str)]
        content = "".join(texts) if texts and len(texts) == len(parts) else None
    return content if isinstance(content, str) else None


def with_dotted_names(record: dict[str, Any]) -> dict[str, Any]:
    """The record, and under dotted names what its objects hold; of messages that end with the assistant's, its text
    under `NAME.assistant`."""
    result = dict(record)
    left = [(name, value, 0) for name, value in record.items() if isinstance(value, dict | list)]
    for name, value, depth in left:  # grows
        if isinstance(value, dict):
            inner = list(value.items())
        elif is_messages(value):
            is_last = role_of(value[-1]) == "assistant"
            inner = [("assistant", text_of_message(value[-1]))] if is_last else []
        else:
            inner = list(enumerate(value[:MAX_LISTED])) if is_list_of_objects(value) else []
        for key, one in inner:
            dotted = f"{name}.{key}"
            if len(dotted) <= MAX_COLUMN_NAME and len(result) < 2 * MAX_COLUMNS:
                result.setdefault(dotted, one)
                if depth < MAX_DEPTH and isinstance(one, dict | list):
                    left.append((dotted, one, depth + 1))
    return result


def _texts(
    taken: list[tuple[int, str]], again: deque[tuple[int, str]], lines: Iterator[tuple[int, str]]
) -> Iterator[str]:
    """The texts of `taken`, then further ones, which are added to it."""
    yield taken[0][1]
    while (line := again.popleft() if again else next(lines, None)) is not None:
        taken.append(line)
        yield line[1]


def _top_column(name: str, names: Sequence[str]) -> str:
    """The column that holds a dotted name; empty if there is none."""
    return max((one for one in names if name == one or name.startswith(f"{one}.")), key=len, default="")


def _as_in_json(value: Any, of: Any) -> Any:
    """A Parquet value as in JSONL: numbers as text, in their own precision, whole floats without ".0".

    of: its pyarrow type. Not a number, infinite and a picture: None.
    """
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        if value.is_integer() and abs(value) < 2**53:
            return str(int(value))
        width = str(of)
        if width in ("float", "halffloat"):  # 0.1 is 0.10000000149011612 as a Python float
            import numpy

            return str(numpy.float32(value) if width == "float" else numpy.float16(value))
        return repr(value)
    if isinstance(value, dict):
        return {name: _as_in_json(item, of.field(name).type) for name, item in value.items()}
    if isinstance(value, list):
        if hasattr(of, "item_type"):  # a map: pairs
            return {str(key): _as_in_json(item, of.item_type) for key, item in value}
        return [_as_in_json(item, of.value_type) for item in value]
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
