"""The API's part for what a run reports: plotted series, contributions of a step, its log, the trainer's output."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db.models import Max
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router, Schema
from ninja.orm import create_schema
from typing_extensions import TypedDict

from hacrl_web.runs.models import Contribution, TelemetryEvent
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.telemetry import logs
from hacrl_web.runs.telemetry.metric_series import read_series
from hacrl_web.web.page_query import MAX_WHOLE
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import EVERY_FIELD, PageOf
from hacrl_web.web.streaming import download

MAX_CONTRIBUTIONS = 5000
CONTRIBUTION_FIELDS = [f.name for f in Contribution._meta.concrete_fields if f.name not in ("id", "run")]
NO_NAMES: list[str] = []
Names = Annotated[list[str], Query()]
Search = Annotated[str, Query(max_length=200)]
router = Router(tags=["runs"])


class SeriesAnswer(TypedDict):
    """One line: values by step; null where a ratio has no denominator or a number is not finite."""

    metric: str
    agent: str
    source: str
    steps: list[int]
    values: list[float | None]


class RunSeriesAnswer(TypedDict):
    run: str
    last_seq: int
    series: list[SeriesAnswer]


class _Row(Schema):
    model_config = EVERY_FIELD


ContributionAnswer = create_schema(Contribution, name="ContributionAnswer", base_class=_Row, exclude=["id", "run"])


class ContributionsAnswer(TypedDict):
    """What each rollout of `source` taught the learner `agent`."""

    items: list[ContributionAnswer]  # type: ignore[valid-type]
    count: int
    next: str | None
    run: str
    step: int


class LogLineAnswer(TypedDict):
    seq: int
    attempt: int
    at: datetime
    level: str
    text: str


class OutputAnswer(TypedDict):
    """lines: null where the output is not on this host."""

    lines: list[str] | None


class ContributionQuery(ListQuery):
    """The query of contributions, of which a page holds more than of others, as they are small."""

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
    """Returns one object for each rollout and learner, with the fields of docs/metrics.md; the step's latest attempt.

    Without a step: the last one whose contributions were recorded (telemetry.rollout_interval).
    """
    run = visible_run(request, run_id)
    if step is None:
        step = run.contributions.aggregate(Max("step"))["step__max"] or 0
    of_step = run.contributions.filter(step=step)
    rows = of_step.filter(attempt=of_step.aggregate(Max("attempt"))["attempt__max"] or 0).order_by("seq")
    return {"run": str(run.pk), "step": step, **listing(rows.values(*CONTRIBUTION_FIELDS), query)}


@router.get(
    "/runs/{run_id}/log", response=PageOf[LogLineAnswer], summary="Lines of the log, oldest first or newest first"
)
def get_log(
    request: HttpRequest,
    run_id: UUID,
    query: Query[ListQuery],
    q: Search = "",
    level: Literal["", "info", "warning", "error"] = "",
    order: Literal["oldest", "newest"] = "oldest",
) -> Any:
    """Lines of the log, with `q` those with this text. Without `q` and `level` also the counts of what was left out."""
    run = visible_run(request, run_id)
    search = q.replace("\x00", "")
    rows = logs.matching(run, search, level) if search or level else logs.log_lines(run)
    return listing(rows.order_by("seq" if order == "oldest" else "-seq"), query, _log_line)


def _log_line(event: TelemetryEvent) -> dict[str, Any]:
    return {"seq": event.seq, "attempt": event.attempt, **logs.line_of(event)}


@router.get(
    "/runs/{run_id}/output", response=OutputAnswer, summary="The newest lines of the trainer's stdout and stderr"
)
def get_output(request: HttpRequest, run_id: UUID, q: Search = "") -> Any:
    """The newest 500 lines of the trainer's output. `lines` is null if the run directory lies on another host."""
    matches = logs.search_output(visible_run(request, run_id), q.replace("\x00", ""))
    return {"lines": None if matches is None else [line["text"] for line in matches[-logs.FOUND_SHOWN :]]}


@router.get("/runs/{run_id}/log.txt", response={200: None}, summary="The whole log as text")
def get_log_file(request: HttpRequest, run_id: UUID) -> StreamingHttpResponse:
    run = visible_run(request, run_id)
    return download(request, logs.as_text(run), f"log-{run.pk}.txt", "text/plain")
