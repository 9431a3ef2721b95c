"""What pages and API answer with: the table of a run or a sweep as a file, and the card about its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from hacrl_web.insight.export.files import FORMATS, encoded
from hacrl_web.insight.export.tables import TABLES, Table
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.streaming import download_pieces, file_slug


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
