"""The Export page of a run or a sweep: its tables, their columns, and the files."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from hacrl_web.insight.checkpoints.checkpoints import bundle_size_refusal, checkpoint_bytes, is_here
from hacrl_web.insight.export.files import FORMATS, export_file
from hacrl_web.insight.export.tables import TABLES
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.models.requests import visible_run, visible_sweep

FORMAT_NAMES = {"jsonl": "JSON Lines", "parquet": "Parquet", "json": "Data card"}


def runs_of(sweep: Sweep) -> list[Run]:
    """The runs that have begun or may begin, the first created first."""
    return list(sweep.runs.exclude(state=State.DRAFT).order_by("created_at", "pk"))


@require_GET
def run_export(request: HttpRequest, run_id: UUID) -> HttpResponse:
    run = visible_run(request, run_id)
    return _page(request, [run], run.name, run.get_absolute_url(), "run", run.pk)


@require_GET
def sweep_export(request: HttpRequest, sweep_id: int) -> HttpResponse:
    sweep = visible_sweep(request, sweep_id)
    return _page(request, runs_of(sweep), sweep.name, sweep.get_absolute_url(), "sweep", sweep.pk)


@require_GET
def run_export_file(request: HttpRequest, run_id: UUID, table: str, ending: str) -> StreamingHttpResponse:
    run = visible_run(request, run_id)
    return export_file(request, [run], run.name, table, ending)


@require_GET
def sweep_export_file(request: HttpRequest, sweep_id: int, table: str, ending: str) -> StreamingHttpResponse:
    sweep = visible_sweep(request, sweep_id)
    return export_file(request, runs_of(sweep), sweep.name, table, ending)


def _page(request: HttpRequest, runs: Sequence[Run], title: str, url: str, what: str, pk: UUID | int) -> HttpResponse:
    tables = [
        {
            "table": table,
            "count": sum(table.count(run) for run in runs),
            "files": [
                (FORMAT_NAMES[ending], reverse(f"insight:{what}_export_file", args=[pk, table.name, ending]))
                for ending in FORMATS
            ],
        }
        for table in TABLES.values()
    ]
    context = {"title": title, "url": url, "what": what, "pk": pk, "runs": runs, "tables": tables}
    if what == "run" and is_here(runs[0]):
        size = checkpoint_bytes(runs[0])
        context |= {"checkpoint_bytes": size, "bundle_refusal": bundle_size_refusal(size)}
    return render(request, "insight/export/export.html", context)
