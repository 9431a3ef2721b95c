"""Tables as JSON Lines and Parquet, streamed, as neither is held in memory as a whole, and their data cards."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from hacrl_web.insight.checkpoints.zip_stream import PieceSink
from hacrl_web.insight.export.tables import TABLES, Table, TableColumn
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.streaming import download_pieces, file_slug

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
    """The value for JSON, which has no NaN and no infinity."""
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


def export_file(
    request: HttpRequest, runs: Sequence[Run], title: str, table_name: str, kind: str
) -> StreamingHttpResponse:
    """Errors: FieldErrors for an unknown table or format."""
    if table_name not in TABLES:
        raise FieldErrors.single("invalid", f"The tables are {', '.join(TABLES)}.", "table", status=404)
    if kind not in FORMATS:
        raise FieldErrors.single("invalid", f"The formats are {', '.join(FORMATS)}.", "format", status=404)
    table = TABLES[table_name]
    pieces = encoded(kind, table, table.rows_of(runs), data_card(runs, title, table))
    return download_pieces(request, pieces, f"{file_slug(title, table_name) or table_name}.{kind}", FORMATS[kind])


def data_card(runs: Sequence[Run], title: str, table: Table) -> dict[str, Any]:
    """What the file holds, of which runs, with which settings."""
    return {
        "title": title,
        "table": table.name,
        "about": table.help,
        "columns": {column.name: column.help for column in table.columns},
        "exported_at": timezone.now().isoformat(timespec="seconds"),
        "runs": [
            {
                "id": str(run.pk),
                "name": run.name,
                "state": run.state,
                "step": run.step,
                "is_generated": run.is_generated,
                "settings": run.spec,
            }
            for run in runs
        ],
    }
