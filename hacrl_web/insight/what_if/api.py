"""The REST API's part for the What-if tab."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router

from hacrl_web.insight.answers import WhatIfAnswer
from hacrl_web.insight.what_if.rows import MAX_WINDOW
from hacrl_web.insight.what_if.what_if import what_if_answer
from hacrl_web.runs.models import Run

MAX_STEP = 2**31 - 1
# Two types: a parameter's default becomes part of its type.
First = Annotated[int, Query(ge=0, le=MAX_STEP)]
Last = Annotated[int, Query(ge=0, le=MAX_STEP)]
Number = Annotated[float | None, Query(allow_inf_nan=False)]
Window = Annotated[int | None, Query(ge=1, le=MAX_WINDOW)]
router = Router(tags=["insight"])


@router.get(
    "/runs/{run_id}/what-if", response=WhatIfAnswer, summary="Recorded rollouts, weighed again with other settings"
)
def what_if(
    request: HttpRequest,
    run_id: UUID,
    first: First = 0,
    last: Last = MAX_STEP,
    alpha: Number = None,
    delta: Number = None,
    delta_step: Number = None,
    cross_clip_gradient: Literal["zero", "keep", "sided"] | None = None,
    capability_window: Window = None,
    ratio_min: Number = None,
    ratio_max: Number = None,
    check: bool = False,
) -> Any:
    """check: also how many of the recorded weights this arithmetic reproduces at the recorded settings."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    settings = {
        "alpha": alpha,
        "delta": delta,
        "delta_step": delta_step,
        "cross_clip_gradient": cross_clip_gradient,
        "capability_window": capability_window,
        "ratio_min": ratio_min,
        "ratio_max": ratio_max,
    }
    changes = {name: value for name, value in settings.items() if value is not None}
    return what_if_answer(run, first, last, changes, checks=check)
