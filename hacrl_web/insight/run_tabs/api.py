"""The REST API's part for the Config, Events and System tabs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router

from hacrl_web.insight import settings_diff
from hacrl_web.insight.answers import ConfigAnswer, SystemAnswer, TimelineAnswer
from hacrl_web.insight.run_tabs import event_list, system
from hacrl_web.runs.models import Run

Kind = Literal["state", "trainer", "evaluation", "checkpoint", "incident", "alert", "left_out"]
YEAR_10000 = 253_402_300_800
Moment = Annotated[float | None, Query(gt=0, lt=YEAR_10000, allow_inf_nan=False)]
Kinds = Annotated[list[Kind], Query()]
NO_KINDS: list[Kind] = []
router = Router(tags=["insight"])


def _run(request: HttpRequest, run_id: UUID) -> Run:
    return get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)


@router.get("/runs/{run_id}/timeline", response=TimelineAnswer, summary="All that happened to a run, newest first")
def get_timeline(request: HttpRequest, run_id: UUID, kind: Kinds = NO_KINDS, before: Moment = None) -> Any:
    """States, starts and ends, evaluations, checkpoints, incidents, alerts. `next` goes into `before`."""
    items, following = event_list.event_page(_run(request, run_id), dict.fromkeys(kind) or get_args(Kind), before)
    return {"items": [asdict(item) for item in items], "next": following}


@router.get("/runs/{run_id}/config", response=ConfigAnswer, summary="A run's settings, beside those of another run")
def get_config(request: HttpRequest, run_id: UUID, against: UUID | None = None, only_different: bool = False) -> Any:
    """By dotted path: the values of this run and of `against`; null and `is_there` false where a run has none."""
    runs = [_run(request, run_id), *([_run(request, against)] if against else [])]
    lines = settings_diff.diff_lines([settings_diff.effective(run) for run in runs])
    return {"runs": [str(run.pk) for run in runs], "lines": settings_diff.as_rows(lines, only_different=only_different)}


@router.get("/runs/{run_id}/system", response=SystemAnswer, summary="Where a run spent its time and memory")
def get_system(
    request: HttpRequest, run_id: UUID, buckets: Annotated[int, Query(ge=1, le=system.BUCKETS)] = system.BUCKETS
) -> Any:
    """Buckets of consecutive steps: seconds by phase, tokens, rollouts, the highest memory; and the attempts."""
    run = _run(request, run_id)
    steps = system.steps(run)
    return {
        "buckets": [asdict(bucket) for bucket in system.buckets(steps, buckets)],
        "attempts": [asdict(attempt) for attempt in system.attempts(run)],
    }
