"""A bundle to save, and the page that imports one."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from hacrl_web.accounts.roles.projects import current_project, for_members
from hacrl_web.insight.bundle.export import bundle_of, check_exportable
from hacrl_web.insight.bundle.importing import import_bundle
from hacrl_web.insight.bundle.reader import bundle_refusal
from hacrl_web.insight.checkpoints.checkpoints import MAX_BUNDLE_BYTES
from hacrl_web.runs.models import Run
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.storage.run_files import pieces_while_reading
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.streaming import download_pieces, file_slug


def bundle_file(request: HttpRequest, run: Run, *, checkpoints: bool) -> StreamingHttpResponse:
    """Error: FieldErrors."""
    check_exportable(run, checkpoints=checkpoints)
    name = f"{file_slug(run.name) or 'run'}-{str(run.pk)[:8]}.hacrl.zip"
    pieces = bundle_of(run, checkpoints=checkpoints)
    if checkpoints:
        pieces = pieces_while_reading(run, pieces)
    return download_pieces(request, pieces, name, "application/zip")


@require_GET
def run_bundle(request: HttpRequest, run_id: UUID) -> StreamingHttpResponse:
    """Send the bundle of a run. checkpoints: 1 adds the files of its checkpoints."""
    return bundle_file(request, visible_run(request, run_id), checkpoints=request.GET.get("checkpoints") == "1")


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def import_run(request: HttpRequest) -> HttpResponse:
    """The page that imports a bundle, which the form sends as `file`."""
    errors, status = [], 200
    if request.method == "POST":
        file = request.FILES.get("file")
        try:
            if file is None:
                raise bundle_refusal("Choose a file.", "missing")
            imported = import_bundle(request.user, file, file.size or 0)
            messages.success(request, f"{imported.run.name} is imported.")
            for note in imported.notes:
                messages.warning(request, note)
            return redirect(imported.run)
        except FieldErrors as refused:
            errors, status = refused.errors, refused.status
    context = {"errors": errors, "project": current_project(request.user), "most_gib": MAX_BUNDLE_BYTES // 2**30}
    return render(request, "insight/bundle/import.html", context, status=status)
