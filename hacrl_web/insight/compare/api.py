"""The API that compares runs: their lines in one picture, and the table of a comparison."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Query, Router
from typing_extensions import TypedDict

from hacrl_web.insight import settings_diff
from hacrl_web.insight.compare.lines import MAX_METRICS, MAX_RUNS, Agents, OverlaidLine, overlaid_lines
from hacrl_web.insight.compare.views import ComparisonQuery, compare_selection
from hacrl_web.insight.overview.api import MetricAnswer
from hacrl_web.insight.overview.overview import XAxis
from hacrl_web.insight.overview.panels import recorded_metrics
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.schemas import Number, query_schema

router = Router(tags=["insight"])


class ComparedLine(TypedDict):
    """run: its place among the runs."""

    run: int
    agent: str
    x: list[Number]
    y: list[float]


class ComparedLines(TypedDict):
    metric: str
    x: str
    lines: list[ComparedLine]


class OverlaidLines(TypedDict):
    x: str
    lines: list[OverlaidLine]


class RecordedMetrics(TypedDict):
    metrics: list[MetricAnswer]


class ComparedRun(TypedDict):
    id: str
    name: str
    algorithm: str
    seed: int


class ComparedRow(TypedDict):
    """agent: null for the mean over agents."""

    run: str
    agent: str | None
    best: float | None
    best_step: int | None
    last: float | None
    last_step: int | None
    best_difference: float | None
    last_difference: float | None


class ComparisonAnswer(TypedDict):
    metric: str
    metrics: list[str]
    baseline: str
    runs: list[ComparedRun]
    rows: list[ComparedRow]
    differing: list[settings_diff.SettingAnswer]


CompareParameters = query_schema(ComparisonQuery)
Bound = Annotated[float | None, Query(ge=0, le=1e18, allow_inf_nan=False)]


@router.get("/compare", response=ComparedLines, summary="The lines of a comparison", url_name="compare_lines")
def compare_lines(
    request: HttpRequest,
    query: Query[CompareParameters],  # type: ignore[valid-type]
    low: Bound = None,
    high: Bound = None,
) -> Any:
    """Lines of one metric over the axis `x` between `low` and `high`. `runs` is repeated, at most 20 times.

    At most 1,500 points a line: of each bucket the lowest, the highest and the last.
    """
    selection = compare_selection(request)
    if selection is None:
        return {"metric": "", "x": "step", "lines": []}
    axis: XAxis = "elapsed" if selection.axis == "time" else selection.axis
    lines = overlaid_lines(selection.runs, {selection.metric}, x=axis, agents="each", low=low, high=high)
    return {"metric": selection.metric, "x": selection.axis, "lines": [one | {"run": one["group"]} for one in lines]}


@router.get(
    "/compare/table", response=ComparisonAnswer, summary="The table of a comparison: best and last of each agent"
)
def compare_table(request: HttpRequest, query: Query[CompareParameters]) -> Any:  # type: ignore[valid-type]
    """`runs` repeated, at most 20; `baseline` is one of them; `best`: high or low.

    `differing`: the settings in which the runs differ.
    """
    selection = compare_selection(request)
    if selection is None:
        raise FieldErrors.single("missing", "Name the runs to compare.", "runs")
    if (baseline := request.GET.get("baseline")) and baseline not in {str(run.pk) for run in selection.runs}:
        raise Http404
    lines = settings_diff.diff_lines(settings_diff.as_trained(selection.runs))
    names = ("best", "best_step", "last", "last_step", "best_difference", "last_difference")
    return {
        "metric": selection.metric,
        "metrics": selection.metrics,
        "baseline": str(selection.baseline.pk),
        "runs": [
            {"id": str(run.pk), "name": run.name, "algorithm": run.algorithm, "seed": run.seed}
            for run in selection.runs
        ],
        "rows": [
            {"run": str(row.run.pk), "agent": None if row.is_mean else row.agent}
            | {name: getattr(row, name) for name in names}
            for row in selection.table()
        ],
        "differing": settings_diff.as_rows(lines, only_different=True),
    }


RunIds = Annotated[list[UUID], Query(min_length=1, max_length=MAX_RUNS)]
Metrics = Annotated[list[Annotated[str, Query(max_length=200)]], Query(min_length=1, max_length=MAX_METRICS)]
MAX_DESCRIBED = 10  # runs whose metrics are listed


@router.get(
    "/compare/lines",
    response=OverlaidLines,
    summary="Several metrics of several runs, or the mean of groups of runs with its interval",
    url_name="overlaid_lines",
)
def get_overlaid_lines(
    request: HttpRequest,
    runs: RunIds,
    metric: Metrics,
    group: Annotated[list[Annotated[int, Query(ge=0, le=MAX_RUNS)]], Query(max_length=MAX_RUNS)] = [],  # noqa: B006
    agents: Agents = "mean",
    x: XAxis = "step",
    low: Bound = None,
    high: Bound = None,
) -> Any:
    """`runs` and `metric` repeated. `group`: a number for each run, in their order; runs of one number become one line,
    their mean with its 95 % confidence interval, at steps that at least half of them have.

    `agents`: the mean over a run's agents, or a line for each. `low`, `high`: of the x axis.
    """
    if group and len(group) != len(runs):
        raise FieldErrors.single("invalid", f"Name a group for each of the {len(runs)} runs, or none.", "group")
    return {
        "x": x,
        "lines": overlaid_lines(
            _named_runs(request, runs), metric, groups=group or None, x=x, agents=agents, low=low, high=high
        ),
    }  # fmt: skip


@router.get(
    "/compare/metrics", response=RecordedMetrics, summary="The metrics that any of the first ten runs has recorded",
    url_name="recorded_metrics",
)  # fmt: skip
def get_recorded_metrics(request: HttpRequest, runs: RunIds) -> Any:
    rows = {
        (one["metric"], one["is_pair"]): one
        for run in _named_runs(request, runs[:MAX_DESCRIBED])
        for one in recorded_metrics(run)
    }
    return {"metrics": [rows[key] for key in sorted(rows)]}


def _named_runs(request: HttpRequest, ids: list[UUID]) -> list[Run]:
    """The runs in the order of their ids. Error: Http404 if the user may not see one of them."""
    by_id = Run.objects.visible_to(request.user).in_bulk(ids)
    if len(by_id) < len(set(ids)):
        raise Http404
    return [by_id[pk] for pk in ids]
