"""The API of the Overview and Logs tabs: lines in buckets, and past events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Router
from typing_extensions import TypedDict

from hacrl_web.insight.downsample import MAX_POINTS
from hacrl_web.insight.overview.overview import XAxis, history, overview
from hacrl_web.insight.overview.panels import MAX_LAYOUT, panels_of, recorded_metrics, save_panels
from hacrl_web.runs.live.api import EventAnswer
from hacrl_web.runs.live.event_reader import frame_text
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.telemetry.logs import attempt_ends
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.schemas import Number, StrictBody

MAX_METRICS = 64
Step = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
router = Router(tags=["insight"])


class LineAnswer(TypedDict):
    """A line in buckets, on the steps of `grids[grid]`; low and high if a bucket has more than one step."""

    metric: str
    agent: str
    source: str
    grid: int
    last: list[float]
    low: NotRequired[list[float]]
    high: NotRequired[list[float]]


class BandAnswer(LineAnswer):
    """Over the runs that differ only in the seed."""

    seeds: list[int]


class PositionsAnswer(TypedDict):
    """The steps' positions on another x axis."""

    steps: list[int]
    values: list[Number | None]


class BucketsAnswer(TypedDict):
    """Lines of the requested metrics from step `first` to `last`; a bucket is `width` steps."""

    run: str
    seq: int
    first: int
    last: int
    width: int
    lines: list[LineAnswer]
    bands: list[BandAnswer]
    grids: list[list[int]]
    x: NotRequired[PositionsAnswer]


class AttemptEndAnswer(TypedDict):
    """A line of the log on how an attempt ended."""

    at: datetime
    attempt: int
    level: str
    text: str


class HistoryAnswer(TypedDict):
    run: str
    seq: int
    events: list[EventAnswer]
    ends: list[AttemptEndAnswer]


class MetricAnswer(TypedDict):
    """is_pair: of a learner and a source."""

    metric: str
    is_pair: bool


class PanelsAnswer(TypedDict):
    """panels: the layout that the run's project has saved.  metrics: what the run has recorded."""

    panels: str
    metrics: list[MetricAnswer]


class PanelsBody(StrictBody):
    panels: str = Field(max_length=MAX_LAYOUT)


def _json(body: dict[str, Any]) -> HttpResponse:
    """The answer as JSON. Equal bodies have equal bytes."""
    return HttpResponse(frame_text(body), content_type="application/json")


@router.get(
    "/runs/{run_id}/buckets", response=BucketsAnswer, summary="Lines of chosen metrics, at most 1,500 points each"
)
def get_buckets(
    request: HttpRequest,
    run_id: UUID,
    metric: Annotated[list[Annotated[str, Query(max_length=200)]], Query(min_length=1, max_length=MAX_METRICS)],
    points: Annotated[int, Query(ge=1, le=MAX_POINTS)] = MAX_POINTS,
    first: Step = None,
    last: Step = None,
    x: XAxis = "step",
    band: Literal["none", "range", "ci"] = "none",
) -> Any:
    """Buckets of steps with their lowest, highest and last value; `first` and `last` choose steps and narrow them.

    `grids` holds the steps of the last values; a line names its grid, and leaves `low` and `high` out if no bucket
    hides a value. A run that continues from a checkpoint begins with the lines of its parent. `x`: places of these
    steps on another axis. `band`: the lowest and highest value, or the 95 % confidence interval of the mean, over the
    runs of the same sweep that differ only in the seed.
    """
    run = visible_run(request, run_id)
    if first is not None and last is not None and first > last:
        raise FieldErrors.single("invalid", f"Must be at most {last}, which is `last`.", "first")
    over_seeds = None if band == "none" else band
    return _json(overview(run, metric, points=points, first=first, last=last, x=x, over_seeds=over_seeds))


@router.get(
    "/runs/{run_id}/history", response=HistoryAnswer, summary="The newest log lines, and what the trainer reported"
)
def get_history(request: HttpRequest, run_id: UUID, up_to: Annotated[int, Query(ge=0, le=2**62)] = 2**62) -> Any:
    """Events as the socket sends them, oldest first, with a seq of at most `up_to`; and how each attempt ended."""
    run = visible_run(request, run_id)
    seq = min(up_to, run.last_seq)
    ends = [line | {"at": line["at"].isoformat()} for line in attempt_ends(run)]
    return _json({"run": str(run.pk), "seq": seq, "events": history(run, seq), "ends": ends})


@router.get(
    "/runs/{run_id}/panels", response=PanelsAnswer, summary="The panels of the Overview, and the metrics for more"
)
def get_panels(request: HttpRequest, run_id: UUID) -> Any:
    run = visible_run(request, run_id)
    return {"panels": panels_of(run), "metrics": recorded_metrics(run)}


@router.put("/runs/{run_id}/panels", response=PanelsAnswer, summary="Save the panels of the Overview for the project")
def put_panels(request: HttpRequest, run_id: UUID, payload: PanelsBody) -> Any:
    """Save the panels in order, with commas: `-` hidden, `*` pinned, a chart or `+metric` (`~`: of pairs), `:s|m|l`."""
    run = visible_run(request, run_id)
    save_panels(request.user, run, payload.panels)
    return {"panels": panels_of(run), "metrics": recorded_metrics(run)}
