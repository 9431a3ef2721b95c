"""What a page of a run shows of the past beside its charts: the newest log lines, and what the trainer reported.

The same events as the socket's frames; the page goes on from `seq` by its socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hacrl_web.runs.models import Run

MAX_LINES = 2000
MAX_REPORTS = 500
LINES = ("log", "left_out")
REPORTS = ("started", "evaluation", "checkpoint", "left_out", "finished")
_COLUMNS = ("seq", "attempt", "type", "step", "agent", "source", "time", "payload")


def history(run: Run, up_to: int) -> list[dict[str, Any]]:
    """Events up to a seq, oldest first: the newest MAX_LINES lines of the log and MAX_REPORTS reports and incidents."""
    events = run.events.filter(seq__lte=up_to).order_by("-seq")
    incidents = events.filter(type="log", payload__incident__isnull=False).exclude(payload__incident=None)
    newest = (
        _newest([events.filter(type=kind) for kind in LINES], MAX_LINES),
        _newest([*(events.filter(type=kind) for kind in REPORTS), incidents], MAX_REPORTS),
    )
    by_seq = {event["seq"]: event for some in newest for event in some}
    return [by_seq[seq] for seq in sorted(by_seq)]


def _newest(kinds: Sequence[Any], count: int) -> list[dict[str, Any]]:
    """Type by type, as the index of (run, type, seq) has them; asked for together, all events would be read."""
    newest = [event for events in kinds for event in events.values(*_COLUMNS)[:count]]
    return sorted(newest, key=lambda event: -event["seq"])[:count]
