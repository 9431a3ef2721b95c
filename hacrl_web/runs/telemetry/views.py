"""The log of a run: its search and its download."""

from __future__ import annotations

import uuid
from typing import Literal

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.telemetry import logs
from hacrl_web.web.page_query import PageQuery, Text
from hacrl_web.web.streaming import download


class LogQuery(PageQuery):
    """A search of the log: text, level, and source (the run's events or the trainer's output)."""

    q: Text = ""
    source: Literal["", "output"] = ""
    level: Text = ""


@require_GET
def log_search(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The newest lines that match, as a part of the Logs tab or as a page. The trainer's output has no levels."""
    run, query = visible_run(request, run_id), LogQuery.read(request.GET)
    matches = logs.search_output(run, query.q) if query.source else logs.search_events(run, query.q, query.level)
    context = {
        "run": run,
        "search": query.q,
        "level": query.level,
        "is_output": bool(query.source),
        "is_elsewhere": matches is None,
        "lines": (matches or [])[-logs.FOUND_SHOWN :],
        "is_cut": len(matches or []) > logs.FOUND_SHOWN,
    }
    is_part = bool(getattr(request, "htmx", False))
    return render(request, f"runs/telemetry/{'_log_found' if is_part else 'run_log'}.html", context)


@require_GET
def log_download(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """The whole log as text."""
    run = visible_run(request, run_id)
    return download(request, logs.as_text(run), f"log-{run.pk}.txt", "text/plain")
