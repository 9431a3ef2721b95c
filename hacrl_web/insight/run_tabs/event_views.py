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
    asked = [name for name in names if name in request.GET.getlist("kind")]
    before = _moment(request.GET.get("before", ""))
    items, following = event_list.page(run, asked or names, before)
    query = [("kind", name) for name in asked]
    context: dict[str, Any] = header(run) | {
        "tab": "events",
        "items": items,
        "kinds": [_choice(name, label, asked) for name, label in event_list.KINDS],
        "is_all": not asked,
        "before": before,
        "query": urlencode(query),
        "next_query": urlencode([*query, ("before", repr(following))]) if following is not None else "",
        "places": {name: place for place, name in enumerate(run.agent_names)},
        "is_live": before is None and not run.is_terminal,
    }
    if getattr(request, "htmx", False):
        return render(request, "insight/_event_rows.html", context)
    return render(request, "insight/run_events.html", context)


def _choice(name: str, label: str, asked: list[str]) -> dict[str, Any]:
    """A filter and the address that turns it on or off."""
    then = [one for one in asked if one != name] if name in asked else [*asked, name]
    return {"label": label, "is_on": name in asked, "query": urlencode([("kind", one) for one in then])}


def _moment(text: str) -> float | None:
    try:
        found = float(text) if len(text) < 40 and text.isascii() else math.nan
    except ValueError:
        return None
    return found if 0 < found < _YEAR_10000 else None
