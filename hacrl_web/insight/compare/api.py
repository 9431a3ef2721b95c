"""The REST API's part for the Compare page."""

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Schema

from hacrl_web.insight.compare import comparison
from hacrl_web.insight.compare.views import choice

router = Router(tags=["insight"])


class CompareQuery(Schema):
    """The parameters of the page's address, which compare_views.choice reads; odd values mean what is usual."""

    runs: list[str] = Query([])
    metric: str = ""
    x: str = ""
    baseline: str = ""
    best: str = ""
    colour: list[str] = Query([])


Bound = Annotated[float | None, Query(ge=0, le=1e18, allow_inf_nan=False)]


@router.get("/compare", response=dict, summary="The lines of a comparison", url_name="compare_lines")
def compare_lines(request: HttpRequest, asked: Query[CompareQuery], low: Bound = None, high: Bound = None) -> Any:
    """As the page's address: runs (repeated, at most 8), metric, x; between `low` and `high` of the x axis.

    At most 1,500 points a line: of each bucket the least, the greatest and the last.
    """
    chosen = choice(request)
    if chosen is None:
        return {"metric": "", "x": "step", "lines": []}
    infinite = float("inf")
    found = comparison.drawn(
        chosen.runs,
        chosen.metric,
        chosen.axis,
        -infinite if low is None else low,
        infinite if high is None else high,
    )
    lines = [{"run": line.run, "agent": line.agent, "x": line.xs, "y": line.ys} for line in found]
    return {"metric": chosen.metric, "x": chosen.axis, "lines": lines}
