"""The API's part for the numbers of a run: plotted series, and the contributions of a step."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.db.models import Max
from django.http import HttpRequest
from ninja import Query, Router

from hacrl_web.runs.api.schemas import ContributionsAnswer, RunSeriesAnswer
from hacrl_web.runs.models import Contribution
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.telemetry.metric_series import read_series
from hacrl_web.web.page_query import MAX_WHOLE
from hacrl_web.web.pagination import ListQuery, listing

MAX_CONTRIBUTIONS = 5000
CONTRIBUTION_FIELDS = [f.name for f in Contribution._meta.concrete_fields if f.name not in ("id", "run")]
NO_NAMES: list[str] = []
Names = Annotated[list[str], Query()]
router = Router(tags=["runs"])


class ContributionQuery(ListQuery):
    """They are many and small."""

    limit: int = Query(1000, ge=1, le=MAX_CONTRIBUTIONS)


@router.get("/runs/{run_id}/series", response=RunSeriesAnswer, summary="The plotted numbers, as columns")
def get_series(request: HttpRequest, run_id: UUID, metric: Names = NO_NAMES, agent: Names = NO_NAMES) -> Any:
    """Choose with ?metric=reward/mean&metric=capability&agent=A; without a choice, everything."""
    run = visible_run(request, run_id)
    series = [
        {
            "metric": one.metric,
            "agent": one.agent,
            "source": one.source,
            "steps": one.steps.tolist(),
            "values": one.numbers(),
        }
        for one in read_series(run, set(metric), set(agent))
    ]
    return {"run": str(run.pk), "last_seq": run.last_seq, "series": series}


@router.get(
    "/runs/{run_id}/contributions",
    response=ContributionsAnswer,
    summary="What each rollout of a step taught each learner",
)
def get_contributions(
    request: HttpRequest,
    run_id: UUID,
    query: Query[ContributionQuery],
    step: Annotated[int | None, Query(ge=0, le=MAX_WHOLE)] = None,
) -> Any:
    """One object for each rollout and learner, with the fields of docs/metrics.md; the step's latest attempt.

    Without a step: the last one whose contributions were recorded (telemetry.rollout_interval).
    """
    run = visible_run(request, run_id)
    if step is None:
        step = run.contributions.aggregate(Max("step"))["step__max"] or 0
    of_step = run.contributions.filter(step=step)
    rows = of_step.filter(attempt=of_step.aggregate(Max("attempt"))["attempt__max"] or 0).order_by("seq")
    return {"run": str(run.pk), "step": step, **listing(rows.values(*CONTRIBUTION_FIELDS), query)}
