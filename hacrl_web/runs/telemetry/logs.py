"""The log of a run: its lines, which are rows, and its trainer's output (stdout and stderr).

The output stays in the run directory (workers/contract/trainer_log.py), on the host that trains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from heapq import merge
from typing import Any

from hacrl_web.runs.models import HELD, Run, State, TelemetryEvent
from workers.contract.trainer_log import read_output

FOUND_SHOWN = 500
LEVELS = ("info", "warning", "error")
_ENDS = {
    State.PAUSED: "info",
    State.STOPPED: "warning",
    State.QUEUED: "warning",
    State.LOST: "error",
    State.FAILED: "error",
}
_WORDS = {State.QUEUED: "queued again"}


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


def attempt_ends(run: Run) -> list[dict[str, Any]]:
    """Lines on how attempts ended short of completion, oldest first. A killed trainer could not log its own end."""
    changes = run.status_changes.filter(to_state__in=_ENDS).order_by("pk")
    return [
        {
            "at": change.at,
            "attempt": change.attempt,
            "level": _ENDS[State(change.to_state)],
            "text": f"run {_WORDS.get(change.to_state, change.to_state)}: {change.reason}".removesuffix(": "),
        }
        for change in changes
        if change.to_state != State.QUEUED or change.from_state in HELD
    ]


def _with_ends(
    run: Run, events: Iterable[TelemetryEvent], search: str = "", level: str = ""
) -> Iterator[dict[str, Any]]:
    """The lines of these events, oldest first, and after those of each attempt the matching lines on how it ended."""
    ends = (
        line
        for line in attempt_ends(run)
        if search.lower() in line["text"].lower() and (level not in LEVELS or level == line["level"])
    )
    lines = ({"attempt": event.attempt, **line_of(event)} for event in events)
    return merge(lines, ends, key=lambda line: line["attempt"])


def matching(run: Run, search: str, level: str) -> Any:
    """Lines that a trainer logged and that contain `search`, in any case; of one level, or of all."""
    events = log_lines(run).filter(type="log")
    if search:
        events = events.filter(payload__message__icontains=search)
    if level in LEVELS:
        events = events.with_text(level=level)
    return events


def search_events(run: Run, search: str, level: str) -> list[dict[str, Any]]:
    """The newest matching lines, at most one more than are shown."""
    newest = matching(run, search, level).order_by("-seq")[: FOUND_SHOWN + 1]
    matches = sorted([*newest, *_search_left_out(run, search, level)], key=lambda event: event.seq)
    return list(_with_ends(run, matches, search, level))[-FOUND_SHOWN - 1 :]


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
    attempt = 1
    for line in _with_ends(run, log_lines(run).order_by("seq").iterator(chunk_size=500)):
        if line["attempt"] > attempt:
            attempt = line["attempt"]
            yield f"\n---- attempt {attempt} ----\n"
        when = line["at"].isoformat(timespec="milliseconds")
        yield f"{when} {line['level']:7} attempt {line['attempt']}: {line['text']}\n"
    yield "\n---- the trainer's output (stdout and stderr of all attempts) ----\n"
    try:
        for text in read_output(run.run_dir):
            yield f"{text}\n"
    except FileNotFoundError:
        yield "The run directory is not on this host.\n"
