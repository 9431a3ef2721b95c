"""The log of a run: its lines, which are rows, and its trainer's output (stdout and stderr).

The output stays in the run directory (workers/contract/trainer_log.py), on the host that trains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from hacrl_web.runs.models import Run, TelemetryEvent
from workers.contract.trainer_log import read_output

FOUND_SHOWN = 500
LEVELS = ("info", "warning", "error")


def log_lines(run: Run) -> Any:
    return TelemetryEvent.objects.filter(run=run, type__in=("log", "left_out"))


def line_of(event: TelemetryEvent) -> dict[str, Any]:
    """A line of the log as pages show it; a count of events that were left out is a line, too."""
    body, level = event.payload, event.payload.get("level", "info")
    text = str(body.get("message", ""))
    if event.type == "left_out":
        counts = ", ".join(f"{count:,} of type {kind}" for kind, count in sorted(body["counts"].items()))
        level, text = "warning", f"left out: {counts} ({body['reason']})"
    return {"at": datetime.fromtimestamp(event.time, UTC), "level": level if level in LEVELS else "info", "text": text}


def matching(run: Run, search: str, level: str) -> Any:
    """Lines that a trainer logged and that contain `search`, in any case; of one level, or of all."""
    events = log_lines(run).filter(type="log")
    if search:
        events = events.filter(payload__message__icontains=search)
    if level in LEVELS:
        events = events.filter(payload__level=level)
    return events


def search_events(run: Run, search: str, level: str) -> list[dict[str, Any]]:
    """The newest matching lines, at most one more than are shown."""
    newest = matching(run, search, level).order_by("-seq")[: FOUND_SHOWN + 1]
    matches = [*newest, *_search_left_out(run, search, level)]
    return [line_of(event) for event in sorted(matches, key=lambda event: event.seq)[-FOUND_SHOWN - 1 :]]


def _search_left_out(run: Run, search: str, level: str) -> list[TelemetryEvent]:
    """The newest matching counts of events that were left out: their texts are written here, beyond any query."""
    text, matches = search.lower(), []
    for event in log_lines(run).filter(type="left_out").order_by("-seq").iterator(chunk_size=500):
        line = line_of(event)
        if text in line["text"].lower() and (level not in LEVELS or level == line["level"]):
            matches.append(event)
        if len(matches) > FOUND_SHOWN:
            break
    return matches


def search_output(run: Run, search: str) -> list[dict[str, Any]] | None:
    """The newest lines of the trainer's output that contain `search`; None if it is not on this host."""
    needle = search.lower()
    try:
        matches = deque((text for text in read_output(run.run_dir) if needle in text.lower()), FOUND_SHOWN + 1)
    except FileNotFoundError:
        return None
    return [{"at": None, "level": "output", "text": text} for text in matches]


def as_text(run: Run) -> Iterator[str]:
    """Every stored line of the log, then the trainer's output as far as it is kept."""
    for event in log_lines(run).order_by("seq").iterator(chunk_size=500):
        line = line_of(event)
        when = line["at"].isoformat(timespec="milliseconds")
        yield f"{when} {line['level']:7} attempt {event.attempt}: {line['text']}\n"
    yield "\n---- the trainer's output (stdout and stderr of all attempts) ----\n"
    try:
        for text in read_output(run.run_dir):
            yield f"{text}\n"
    except FileNotFoundError:
        yield "The run directory is not on this host.\n"
