"""The log of a run beyond what its page shows live: search on the server, and download whole. logs.py reads it."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry import logs
from hacrl_web.web.streaming import download


@require_GET
def log_search(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The newest lines of a source that hold `q` (whatever its case) and, of the events, are of `level`.

    A part of the Logs tab, or a page.
    """
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    search = request.GET.get("q", "").replace("\x00", "")[:200]
    level = request.GET.get("level", "")
    is_output = request.GET.get("source") == "output"
    matches = logs.search_output(run, search) if is_output else logs.search_events(run, search, level)
    context = {
        "run": run,
        "search": search,
        "level": level,
        "levels": logs.LEVELS,
        "is_output": is_output,
        "is_elsewhere": matches is None,
        "lines": (matches or [])[-logs.FOUND_SHOWN :],
        "is_cut": len(matches or []) > logs.FOUND_SHOWN,
    }
    is_part = bool(getattr(request, "htmx", False))
    return render(request, "runs/pages/_log_found.html" if is_part else "runs/pages/run_log.html", context)


@require_GET
def log_download(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """The whole log as text."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    return download(request, logs.as_text(run), f"log-{run.pk}.txt", "text/plain")
