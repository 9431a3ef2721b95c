"""The Events tab: one list by time, filtered by kind. Views parse, call and render."""

from __future__ import annotations

import math
import uuid
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from hacrl_web.insight.run_tabs import event_list
from hacrl_web.runs.pages.runs import header, run_or_404

_YEAR_10000 = 253_402_300_800


@require_GET
def run_events(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """`kind` (repeated) chooses, all without it; `before` is where a page begins. Odd values choose everything."""
    run = run_or_404(request, run_id)
    names = [name for name, _ in event_list.KINDS]
    kinds = [name for name in names if name in request.GET.getlist("kind")]
    before = _moment(request.GET.get("before", ""))
    items, following = event_list.event_page(run, kinds or names, before)
    query = [("kind", name) for name in kinds]
    context: dict[str, Any] = header(run) | {
        "tab": "events",
        "items": items,
        "kinds": [_choice(name, label, kinds) for name, label in event_list.KINDS],
        "is_all": not kinds,
        "before": before,
        "query": urlencode(query),
        "next_query": urlencode([*query, ("before", repr(following))]) if following is not None else "",
        "places": {name: place for place, name in enumerate(run.agent_names)},
        "is_live": before is None and not run.is_terminal,
    }
    if getattr(request, "htmx", False):
        return render(request, "insight/_event_rows.html", context)
    return render(request, "insight/run_events.html", context)


def _choice(name: str, label: str, kinds: list[str]) -> dict[str, Any]:
    """A filter and the address that turns it on or off."""
    then = [one for one in kinds if one != name] if name in kinds else [*kinds, name]
    return {"label": label, "is_on": name in kinds, "query": urlencode([("kind", one) for one in then])}


def _moment(text: str) -> float | None:
    try:
        moment = float(text) if len(text) < 40 and text.isascii() else math.nan
    except ValueError:
        return None
    return moment if 0 < moment < _YEAR_10000 else None
