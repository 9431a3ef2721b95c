"""The log of a run beyond what its page shows live: search on the server, download whole; and what the run takes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from hacrl_web.runs.disk import disk_use
from hacrl_web.runs.models import Run, TelemetryEvent
from hacrl_web.runs.streaming import download

FOUND_SHOWN = 500
LEVELS = ("info", "warning", "error")


def _lines(run: Run) -> Any:
    return TelemetryEvent.objects.filter(run=run, type__in=("log", "left_out"))


def _line(event: TelemetryEvent) -> dict[str, Any]:
    """A line of the log as it is shown: a count of what was left out is one too."""
    body, level = event.payload, event.payload.get("level", "info")
    text = str(body.get("message", ""))
    if event.type == "left_out":
        counts = ", ".join(f"{count:,} of type {kind}" for kind, count in sorted(body["counts"].items()))
        level, text = "warning", f"left out: {counts} ({body['reason']})"
    return {"at": datetime.fromtimestamp(event.time, UTC), "level": level if level in LEVELS else "info", "text": text}


@require_GET
def log_search(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The newest lines that hold `q` (whatever its case) and are of `level`; a part of the Logs tab, or a page."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    search = request.GET.get("q", "").replace("\x00", "")[:200]
    level = request.GET.get("level", "")
    lines = _lines(run)
    if search:
        lines = lines.filter(payload__message__icontains=search)
    if level in LEVELS:
        lines = lines.filter(payload__level=level)
    found = list(lines.order_by("-seq")[: FOUND_SHOWN + 1])
    context = {
        "run": run,
        "search": search,
        "level": level,
        "levels": LEVELS,
        "lines": [_line(event) for event in reversed(found[:FOUND_SHOWN])],
        "is_cut": len(found) > FOUND_SHOWN,
    }
    is_part = bool(getattr(request, "htmx", False))
    return render(request, "runs/_log_found.html" if is_part else "runs/run_log.html", context)


@require_GET
def log_download(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """Every stored line of the log as text."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)

    def lines() -> Iterator[str]:
        for event in _lines(run).order_by("seq").iterator(chunk_size=500):
            line = _line(event)
            when = line["at"].isoformat(timespec="milliseconds")
            yield f"{when} {line['level']:7} attempt {event.attempt}: {line['text']}\n"

    return download(request, lines(), f"log-{run.pk}.txt", "text/plain")


@require_GET
def run_disk(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """What the run takes on the disk; asked for by the page after it is shown, because counting takes time."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    return render(request, "runs/_disk.html", {"run": run, "use": disk_use(run)})
