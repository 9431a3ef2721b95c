"""What a page of a run shows of the past beside its charts: the newest log lines, and what the trainer reported.

The same events as the socket's frames; the page goes on from `seq` by its socket.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from hacrl_web.runs.models import Run

MAX_LINES = 2000
MAX_REPORTS = 500
REPORTS = ("started", "evaluation", "checkpoint", "left_out", "finished")
_COLUMNS = ("seq", "attempt", "type", "step", "agent", "source", "time", "payload")


def history(run: Run, up_to: int) -> list[dict[str, Any]]:
    """Events up to a seq, oldest first: the newest MAX_LINES lines of the log and MAX_REPORTS reports and incidents."""
    events = run.events.filter(seq__lte=up_to).order_by("-seq")
    is_incident = Q(type="log", payload__incident__isnull=False) & ~Q(payload__incident=None)
    newest = (
        events.filter(type__in=("log", "left_out")).values(*_COLUMNS)[:MAX_LINES],
        events.filter(Q(type__in=REPORTS) | is_incident).values(*_COLUMNS)[:MAX_REPORTS],
    )
    by_seq = {event["seq"]: event for some in newest for event in some}
    return [by_seq[seq] for seq in sorted(by_seq)]
