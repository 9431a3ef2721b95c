"""Confirmation pages: GET shows what archiving or deleting runs, a sweep or a benchmark would do, POST does it.

Also the disk use of one run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from hacrl_web.accounts.roles.projects import for_members, require_delete
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.archive import archive, deletion
from hacrl_web.runs.archive.disk_use import DiskUse, disk_use
from hacrl_web.runs.models import GENERATED, Run
from hacrl_web.runs.models.requests import visible_run, visible_sweep
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import uuid_or_none

MAX_RUNS = 50  # a page of the list; the disk use of each is counted
ACTS: dict[str, tuple[Callable[[Any, Run], None], str]] = {
    "archive": (archive.archive, "archived"),
    "unarchive": (archive.unarchive, "back in the list"),
    "delete": (deletion.delete_run, "deleted"),
}
require_page = require_http_methods(["GET", "HEAD", "POST"])


@dataclass(frozen=True)
class BulkEntry:
    """A ticked run. refusal: why it stays as it is, or empty. use, last_checkpoint: what a deletion loses."""

    run: Run
    refusal: str = ""
    use: DiskUse | None = None
    last_checkpoint: int | None = None


@for_members
@require_page
def change_runs(request: HttpRequest, act: str) -> HttpResponse:
    """An act on the runs that `runs` names. The refusal of one does not stop the others."""
    change, result = ACTS[act]
    is_post = request.method == "POST"
    ids = [uuid_or_none(text) for text in (request.POST if is_post else request.GET).getlist("runs")[:MAX_RUNS]]
    runs = Run.objects.visible_to(request.user).filter(pk__in=ids).select_related("project", "sweep")
    if not is_post:
        entries = _losses(request, runs) if act == "delete" else [BulkEntry(run) for run in runs]
        return _confirm(request, act, entries)
    num_changed, refusals = 0, []
    for run in runs:
        try:
            change(request.user, run)
            num_changed += 1
        except FieldErrors as refused:
            refusals.append(BulkEntry(run, str(refused)))
    if num_changed:
        messages.info(request, f"{num_changed} run{'s are' if num_changed > 1 else ' is'} {result}.")
    return _confirm(request, act, refusals, 409) if refusals else redirect("runs:run_list")


@for_members
@require_page
def sweep_delete(request: HttpRequest, sweep_id: int) -> HttpResponse:
    """Deletes the sweep with all its runs, or none."""
    sweep = visible_sweep(request, sweep_id)
    error, status = "", 200
    if request.method == "POST":
        try:
            deletion.delete_sweep(request.user, sweep)
            messages.info(request, f"{sweep.name} is deleted.")
            return redirect("runs:sweep_list")
        except FieldErrors as refused:
            error, status = refused.text, refused.status
    entries = _losses(request, sweep.runs.select_related("project", "sweep"))
    return _confirm(request, "delete", entries, status, sweep=sweep, error=error)


@for_members
@require_page
def benchmark_delete(request: HttpRequest, pk: int) -> HttpResponse:
    benchmark = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)
    errors, status = [], 200
    try:
        require_delete(request.user, benchmark)
        if request.method == "POST":
            name = benchmark.name
            archive.delete_benchmark(benchmark)
            messages.info(request, f"{name} is deleted.")
            return redirect("registry:benchmark_list")
    except FieldErrors as refused:
        errors, status = refused.errors, refused.status
    context = {"benchmark": benchmark, "loss": archive.deletion_summary(benchmark), "errors": errors}
    return render(request, "runs/archive/benchmark_delete.html", context, status=status)


@require_GET
def run_disk(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The run's disk use, a part that the page loads later, because counting takes time."""
    run = visible_run(request, run_id)
    return render(request, "runs/archive/_disk.html", {"run": run, "use": disk_use(run)})


def _losses(request: HttpRequest, runs: Iterable[Run]) -> list[BulkEntry]:
    readers = deletion.readers_by_folder()
    return [_loss(request, run, readers) for run in runs]


def _loss(request: HttpRequest, run: Run, readers: deletion.Readers) -> BulkEntry:
    if refusal := deletion.deletion_refusal(request.user, run, readers):
        return BulkEntry(run, str(refusal))
    saved = run.events.filter(type="checkpoint").order_by("-seq").values_list("step", flat=True).first()
    return BulkEntry(run, use=disk_use(run), last_checkpoint=None if run.files_removed_at else saved)


def _confirm(request: HttpRequest, act: str, entries: list[BulkEntry], status: int = 200, **more: Any) -> HttpResponse:
    accepted = [entry for entry in entries if not entry.refusal]
    uses = [entry.use for entry in accepted if entry.use]
    reachable = ("", GENERATED, data_folder_id())
    context = {
        "act": act,
        "accepted": accepted,
        "refused_entries": [entry for entry in entries if entry.refusal],
        "num_bytes": sum(use.rows_bytes + (use.files_bytes or 0) for use in uses),
        # Files on another host stay there.
        "elsewhere": [entry for entry in accepted if entry.run.data_folder not in reachable],
        **more,
    }
    return render(request, "runs/archive/confirm.html", context, status=status)
