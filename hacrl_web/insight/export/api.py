"""The REST API's part for exports: a table of a run or a sweep as a file."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router
from typing_extensions import TypedDict

from hacrl_web.insight.export.files import export_file
from hacrl_web.insight.export.tables import TABLES
from hacrl_web.insight.export.views import runs_of
from hacrl_web.runs.models.requests import visible_run, visible_sweep

router = Router(tags=["insight"])


class ExportColumn(TypedDict):
    """kind: integer, number or text; a cell may be empty."""

    name: str
    kind: str
    help: str


class ExportTable(TypedDict):
    name: str
    help: str
    columns: list[ExportColumn]


class ExportTables(TypedDict):
    items: list[ExportTable]


@router.get("/export-tables", response=ExportTables, summary="The tables that can be exported, and their columns")
def list_tables(request: HttpRequest) -> Any:
    return {
        "items": [
            {
                "name": table.name,
                "help": table.help,
                "columns": [{"name": one.name, "kind": one.kind, "help": one.help} for one in table.columns],
            }
            for table in TABLES.values()
        ]
    }


@router.get("/runs/{run_id}/export/{table}.{ending}", summary="A table of a run as JSON Lines or Parquet")
def export_run(request: HttpRequest, run_id: UUID, table: str, ending: str) -> Any:
    """table: metrics, rollouts or contributions.  ending: jsonl, parquet, or json: its data card."""
    run = visible_run(request, run_id)
    return export_file(request, [run], run.name, table, ending)


@router.get("/sweeps/{int:sweep_id}/export/{table}.{ending}", summary="A table of all runs of a sweep")
def export_sweep(request: HttpRequest, sweep_id: int, table: str, ending: str) -> Any:
    """Export a table of all runs of a sweep. The columns `run` to `seed` tell the runs apart."""
    sweep = visible_sweep(request, sweep_id)
    return export_file(request, runs_of(sweep), sweep.name, table, ending)
