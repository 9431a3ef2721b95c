"""The REST API of the Rollouts and What-if tabs."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router

from hacrl_web.insight.answers import RolloutOrNone, WhatIfAnswer
from hacrl_web.insight.what_if.answer import what_if_answer
from hacrl_web.insight.what_if.rows import MAX_WINDOW
from hacrl_web.runs.models import Run
from hacrl_web.web.visible import visible

MAX_STEP = 2**31 - 1
MAX_SHOWN = 200_000  # characters of one text on a page
# Two, since a parameter's default becomes part of its type: with one, the last step's would be the first one's too.
First = Annotated[int, Query(ge=0, le=MAX_STEP)]
Last = Annotated[int, Query(ge=0, le=MAX_STEP)]
Knob = Annotated[float | None, Query(allow_inf_nan=False)]
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
    alpha: Knob = None,
    delta: Knob = None,
    delta_step: Knob = None,
    cross_clip_gradient: Literal["zero", "keep", "sided"] | None = None,
    capability_window: Window = None,
    ratio_min: Knob = None,
    ratio_max: Knob = None,
    check: bool = False,
) -> Any:
    """check: also how many of the recorded weights this arithmetic gives back at the recorded settings."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    knobs = {
        "alpha": alpha,
        "delta": delta,
        "delta_step": delta_step,
        "cross_clip_gradient": cross_clip_gradient,
        "capability_window": capability_window,
        "ratio_min": ratio_min,
        "ratio_max": ratio_max,
    }
    changes = {name: value for name, value in knobs.items() if value is not None}
    return what_if_answer(run, first, last, changes, checks=check)


@router.get(
    "/runs/{run_id}/rollout-text", response=RolloutOrNone, summary="A recorded rollout with its prompt and its text"
)
def rollout_text(
    request: HttpRequest, run_id: UUID, seq: Annotated[int, Query(ge=0, lt=2**62)] = 0, shown: bool = False
) -> Any:
    """shown: as a page may show it, control characters written out and cut where it would be too much for one."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    names = ("step", "agent", "prompt_id", "sample", "prompt", "completion", "answer", "reward")
    answer = run.rollouts.filter(seq=seq).values(*names).first()
    if answer is not None and shown:
        length = len(answer["completion"])
        answer["completion"] = visible(answer["completion"][:MAX_SHOWN])
        answer |= {"length": length, "shown": min(length, MAX_SHOWN)}
    return {"rollout": answer}
