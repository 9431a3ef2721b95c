"""The page that asks before ticked runs are archived, taken back or deleted, or a sweep is: it names them first."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from hacrl_web.accounts.projects import for_members
from hacrl_web.runs.archive import archive
from hacrl_web.runs.archive.disk_use import DiskUse, disk_use
from hacrl_web.runs.models import GENERATED, Run, Sweep
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.web.errors import FieldErrors

MOST_RUNS = 50  # a page of the list; the disk use of each is counted
require_page = require_http_methods(["GET", "HEAD", "POST"])


@dataclass(frozen=True)
class BulkEntry:
    """A ticked run. refusal: why it stays as it is; empty where nothing is in the way."""

    run: Run
    refusal: str = ""
    use: DiskUse | None = None
    last_checkpoint: int | None = None


@for_members
@require_page
def runs_archive(request: HttpRequest) -> HttpResponse:
    return _page(request, "archive", archive.archive, "archived")


@for_members
@require_page
def runs_unarchive(request: HttpRequest) -> HttpResponse:
    return _page(request, "unarchive", archive.unarchive, "back in the list")


@for_members
@require_page
def runs_delete(request: HttpRequest) -> HttpResponse:
    return _page(request, "delete", archive.delete_run, "deleted")


def _page(request: HttpRequest, act: str, do: Callable[[Any, Run], None], done: str) -> HttpResponse:
    """GET asks, POST does it. Runs that refuse stay, and the page says why; the others go."""
    runs = _ticked(request)
    if request.method != "POST":
        entries = [_looked_at(request, run) if act == "delete" else BulkEntry(run) for run in runs]
        return _render(request, act, entries)
    refused = []
    for run in runs:
        try:
            do(request.user, run)
        except FieldErrors as errors:
            refused.append(BulkEntry(run, str(errors)))
    if done_runs := len(runs) - len(refused):
        messages.info(request, f"{done_runs} run{'s are' if done_runs > 1 else ' is'} {done}.")
    if refused:
        return _render(request, act, refused, 409)
    return redirect("runs:run_list")


@for_members
@require_page
def sweep_delete(request: HttpRequest, sweep_id: int) -> HttpResponse:
    """GET names its runs and what is lost, POST deletes the sweep with all of them, or none."""
    sweep = get_object_or_404(Sweep.objects.visible_to(request.user).select_related("project"), pk=sweep_id)
    error, status = "", 200
    if request.method == "POST":
        try:
            archive.delete_sweep(request.user, sweep)
            messages.info(request, f"{sweep.name} is deleted.")
            return redirect("runs:sweep_list")
        except FieldErrors as refused:
            error, status = " ".join(one.message for one in refused.errors), refused.status
    runs = [_looked_at(request, run) for run in sweep.runs.select_related("project", "sweep")]
    return _render(request, "delete", runs, status, sweep=sweep, error=error)


def _ticked(request: HttpRequest) -> list[Run]:
    """The runs that the request names and the user may see; what is no id is passed over."""
    texts = (request.POST if request.method == "POST" else request.GET).getlist("runs")[:MOST_RUNS]
    ids = []
    for text in texts:
        try:
            ids.append(uuid.UUID(text))
        except ValueError:
            continue
    return list(Run.objects.visible_to(request.user).filter(pk__in=ids).select_related("project", "sweep"))


def _looked_at(request: HttpRequest, run: Run) -> BulkEntry:
    """What would be lost with it."""
    if refusal := archive.why_kept(request.user, run):
        return BulkEntry(run, str(refusal))
    saved = run.events.filter(type="checkpoint").order_by("-seq").values_list("step", flat=True).first()
    return BulkEntry(run, use=disk_use(run), last_checkpoint=saved)


def _render(request: HttpRequest, act: str, entries: list[BulkEntry], status: int = 200, **more: Any) -> HttpResponse:
    going = [one for one in entries if not one.refusal]
    uses = [one.use for one in going if one.use]
    here = ("", GENERATED, data_folder_id())
    context = {
        "act": act,
        "going": going,
        "staying": [one for one in entries if one.refusal],
        "num_bytes": sum(use.rows_bytes + (use.files_bytes or 0) for use in uses),
        # Files on another host stay there: nobody here can reach them.
        "elsewhere": [one for one in going if one.run.data_folder not in here],
        **more,
    }
    return render(request, "runs/archive/confirm.html", context, status=status)
