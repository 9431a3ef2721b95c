"""Tables as JSON Lines and Parquet, streamed, as neither is held in memory as a whole, and their data cards."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from hacrl_web.insight.checkpoints.zip_stream import PieceSink
from hacrl_web.insight.export.tables import Table, TableColumn
from hacrl_web.web.errors import FieldErrors

FORMATS = {"jsonl": "application/jsonl", "parquet": "application/vnd.apache.parquet", "json": "application/json"}
ROW_GROUP = 20_000
LINES_AT_ONCE = 500
NO_PARQUET = "Parquet needs the package pyarrow on the web host: take JSON Lines, or install it."
Row = tuple[Any, ...]


def encoded(kind: str, table: Table, rows: Iterable[Row], card: dict[str, Any]) -> Iterator[bytes]:
    """The pieces of a file of FORMATS: `json` is the card alone, which Parquet has in its schema, too.

    Error: FieldErrors if Parquet cannot be written here.
    """
    if kind == "json":
        return iter([json.dumps(card, ensure_ascii=False, indent=1).encode()])
    return _jsonl(table.columns, iter(rows)) if kind == "jsonl" else _parquet(table.columns, iter(rows), card)


def _jsonl(columns: tuple[TableColumn, ...], rows: Iterator[Row]) -> Iterator[bytes]:
    names = [column.name for column in columns]
    while some := list(islice(rows, LINES_AT_ONCE)):
        lines = (json.dumps(dict(zip(names, map(_finite, row), strict=True)), ensure_ascii=False) for row in some)
        yield "".join(f"{line}\n" for line in lines).encode()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parquet(columns: tuple[TableColumn, ...], rows: Iterator[Row], card: dict[str, Any]) -> Iterator[bytes]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise FieldErrors.single("no_parquet", NO_PARQUET, status=501) from None
    kinds = {"integer": pyarrow.int64(), "number": pyarrow.float64(), "text": pyarrow.string()}
    fields = [pyarrow.field(one.name, kinds[one.kind], metadata={"help": one.help}) for one in columns]
    schema = pyarrow.schema(fields, metadata={"hacrl": json.dumps(card, ensure_ascii=False)})

    def pieces() -> Iterator[bytes]:
        file = PieceSink()
        with parquet.ParquetWriter(pyarrow.PythonFile(file, mode="w"), schema, compression="zstd") as writer:
            while some := list(islice(rows, ROW_GROUP)):
                values = zip(*some, strict=True)
                arrays = [pyarrow.array(one, type=field.type) for one, field in zip(values, fields, strict=True)]
                writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
                yield file.take()
        yield file.take()

    return pieces()
