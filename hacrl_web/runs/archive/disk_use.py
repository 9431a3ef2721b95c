"""What a run takes on the disk: its rows, weighed by their texts and numbers, and its run directory, file by file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import BigIntegerField, BinaryField, CharField, Count, Func, JSONField, Sum, TextField
from django.db.models.functions import Cast

from hacrl_web.runs.models import RECORDED_TABLES, Run
from hacrl_web.runs.storage.run_files import folder_bytes

NUMBER_BYTES = 8
INDEX_FACTOR = 1.3  # two indexes of a row beside it


@dataclass(frozen=True)
class DiskUse:
    """files_bytes is None where the run directory lies on another host."""

    num_rows: int
    rows_bytes: int
    files_bytes: int | None


class _NumBytes(Func):
    """Bytes of a text; SQLite's LENGTH of a text would count characters."""

    function = "OCTET_LENGTH"
    output_field = BigIntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="LENGTH(CAST(%(expressions)s AS BLOB))", **context)


def disk_use(run: Run) -> DiskUse:
    """Rows are counted and their texts summed in the database: one long line among short ones misleads any sample."""
    num_rows = rows_bytes = 0
    for model in RECORDED_TABLES:
        rows: Any = model._default_manager.filter(run=run).order_by()
        fields = model._meta.concrete_fields
        texts = [field.name for field in fields if isinstance(field, TextField | CharField | JSONField)]
        sums = {f"bytes_of_{name}": Sum(_NumBytes(Cast(name, TextField()))) for name in texts}
        sums |= {
            f"bytes_of_{field.name}": Sum(_NumBytes(field.name)) for field in fields if isinstance(field, BinaryField)
        }
        totals = rows.aggregate(count=Count("pk"), **sums)
        count = totals.pop("count")
        num_rows += count
        fixed = NUMBER_BYTES * (len(fields) - len(texts)) * count
        rows_bytes += int(INDEX_FACTOR * (fixed + sum(size or 0 for size in totals.values())))
    return DiskUse(num_rows, rows_bytes, folder_bytes(str(run.run_dir)) if run.attempt else 0)
