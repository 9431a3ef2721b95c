"""What pages and API read of a request: the run or sweep that it names, and the reason of a change."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from hacrl_web.runs.models import Run, Sweep
from hacrl_web.web.page_query import clean_text


def visible_run(request: HttpRequest, run_id: UUID) -> Run:
    """Error: Http404."""
    return get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)


def visible_sweep(request: HttpRequest, sweep_id: int) -> Sweep:
    """Error: Http404."""
    return get_object_or_404(Sweep.objects.visible_to(request.user).select_related("owner"), pk=sweep_id)


def change_reason(verb: str, request: HttpRequest, why: Any = "") -> str:
    """The stored reason of a user's change: "paused by ada: lunch"."""
    text = clean_text(str(why or ""))
    return f"{verb} by {request.user.get_username()}" + (f": {text}" if text else "")
