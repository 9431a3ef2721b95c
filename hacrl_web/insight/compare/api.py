"""The API of the Compare page."""

from math import inf
from typing import Annotated, Any

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from typing_extensions import TypedDict

from hacrl_web.insight import settings_diff
from hacrl_web.insight.compare import comparison
from hacrl_web.insight.compare.views import compare_selection
from hacrl_web.web.errors import FieldErrors

router = Router(tags=["insight"])


class ComparedLines(TypedDict):
    metric: str
    x: str
    lines: list[comparison.ComparedLine]


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


class CompareQuery(Schema):
    """The parameters of the page's address, which `compare_selection` reads; unreadable values mean the default."""

    runs: list[str] = Query([])
    metric: str = ""
    x: str = ""
    baseline: str = ""
    best: str = ""
    colour: list[str] = Query([])


Bound = Annotated[float | None, Query(ge=0, le=1e18, allow_inf_nan=False)]


@router.get("/compare", response=ComparedLines, summary="The lines of a comparison", url_name="compare_lines")
def compare_lines(request: HttpRequest, query: Query[CompareQuery], low: Bound = None, high: Bound = None) -> Any:
    """As the page's address: runs (repeated, at most 8), metric, x; between `low` and `high` of the x axis.

    At most 1,500 points a line: of each bucket the lowest, the highest and the last.
    """
    selection = compare_selection(request)
    if selection is None:
        return {"metric": "", "x": "step", "lines": []}
    lines = comparison.compared_lines(
        selection.runs,
        selection.metric,
        selection.axis,
        -inf if low is None else low,
        inf if high is None else high,
    )
    return {"metric": selection.metric, "x": selection.axis, "lines": lines}


@router.get(
    "/compare/table", response=ComparisonAnswer, summary="The table of a comparison: best and last of each agent"
)
def compare_table(request: HttpRequest, query: Query[CompareQuery]) -> Any:
    """`runs` repeated, at most 8; `baseline` is one of them; `best`: high or low.

    `differing`: the settings in which the runs differ.
    """
    selection = compare_selection(request)
    if selection is None:
        raise FieldErrors.single("missing", "Name the runs to compare.", "runs")
    if query.baseline and query.baseline not in {str(run.pk) for run in selection.runs}:
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
