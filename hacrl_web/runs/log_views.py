"""The log of a run beyond what its page shows live: search on the server, and download whole.

Two sources: the events, which are rows, and what the trainer's process wrote to stdout and stderr, which stays in the
run directory (workers/output.py) and is only there on the host that trains.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from hacrl_web.runs.models import Run, TelemetryEvent
from hacrl_web.runs.streaming import download
from workers.output import read_output

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


def _search_events(run: Run, search: str, level: str) -> list[dict[str, Any]]:
    lines = _lines(run).filter(type="log")
    if search:
        lines = lines.filter(payload__message__icontains=search)
    if level in LEVELS:
        lines = lines.filter(payload__level=level)
    found = [*lines.order_by("-seq")[: FOUND_SHOWN + 1], *_search_left_out(run, search, level)]
    return [_line(event) for event in sorted(found, key=lambda event: event.seq)[-FOUND_SHOWN - 1 :]]


def _search_left_out(run: Run, search: str, level: str) -> list[TelemetryEvent]:
    """The newest counts of what was left out: their words are made here, so no query can look for them."""
    wanted, found = search.lower(), []
    for event in _lines(run).filter(type="left_out").order_by("-seq").iterator(chunk_size=500):
        line = _line(event)
        if wanted in line["text"].lower() and (level not in LEVELS or level == line["level"]):
            found.append(event)
        if len(found) > FOUND_SHOWN:
            break
    return found


def _search_output(run: Run, search: str) -> list[dict[str, Any]] | None:
    """The newest lines of the trainer's output that hold `search`; None where it is not on this host."""
    wanted = search.lower()
    try:
        found = deque((text for text in read_output(run.run_dir) if wanted in text.lower()), FOUND_SHOWN + 1)
    except FileNotFoundError:
        return None
    return [{"at": None, "level": "output", "text": text} for text in found]


@require_GET
def log_search(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The newest lines of a source that hold `q` (whatever its case) and, of the events, are of `level`.

    A part of the Logs tab, or a page.
    """
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    search = request.GET.get("q", "").replace("\x00", "")[:200]
    level = request.GET.get("level", "")
    is_output = request.GET.get("source") == "output"
    found = _search_output(run, search) if is_output else _search_events(run, search, level)
    context = {
        "run": run,
        "search": search,
        "level": level,
        "levels": LEVELS,
        "is_output": is_output,
        "is_elsewhere": found is None,
        "lines": (found or [])[-FOUND_SHOWN:],
        "is_cut": len(found or []) > FOUND_SHOWN,
    }
    is_part = bool(getattr(request, "htmx", False))
    return render(request, "runs/_log_found.html" if is_part else "runs/run_log.html", context)


@require_GET
def log_download(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """Every stored line of the log as text, and after them what is kept of the trainer's output."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)

    def lines() -> Iterator[str]:
        for event in _lines(run).order_by("seq").iterator(chunk_size=500):
            line = _line(event)
            when = line["at"].isoformat(timespec="milliseconds")
            yield f"{when} {line['level']:7} attempt {event.attempt}: {line['text']}\n"
        yield "\n---- the trainer's output (stdout and stderr of all attempts) ----\n"
        try:
            for text in read_output(run.run_dir):
                yield f"{text}\n"
        except FileNotFoundError:
            yield "The run directory is not on this host.\n"

    return download(request, lines(), f"log-{run.pk}.txt", "text/plain")
