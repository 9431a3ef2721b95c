"""The API of the leaderboard: the boards, and one board as the page's files hold it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router
from typing_extensions import TypedDict

from hacrl_web.leaderboard import views
from hacrl_web.leaderboard.board.boards import board_of, sources
from hacrl_web.leaderboard.board.selection import BoardAddress, BoardSelection
from hacrl_web.web.page_query import clean_text
from hacrl_web.web.schemas import Number, PageOf, query_schema

MAX_BOARDS = 50
router = Router(tags=["leaderboard"])


class BoardQuery(BoardAddress, BoardSelection):
    """`sweep` (repeated), or `group` and `benchmark`; the rest selects what is shown."""


BoardParameters = query_schema(BoardQuery, without=("row",))


class BoardHead(TypedDict):
    """query: the parameters that name the board."""

    name: str
    query: str
    url: str
    benchmarks: list[str]
    num_runs: int
    is_generated: bool


class IntervalAnswer(TypedDict):
    mean: float
    half_width: float | None
    seeds: int


class ScoreAnswer(TypedDict):
    score: IntervalAnswer | None
    by_seed: dict[str, float]
    mark: str | None
    difference: IntervalAnswer | None
    verdict: str | None


class BoardLineAnswer(TypedDict):
    """agent: null for the mean over agents."""

    agent: str | None
    start: float | None
    scores: dict[str, ScoreAnswer]


class BoardColumnAnswer(TypedDict):
    title: str
    benchmarks: list[str]
    measured_by: str


class BoardRowAnswer(TypedDict):
    id: str
    algorithm: str
    label: str  # the algorithm with what tells its rows apart
    told_apart_by: dict[str, Any]
    seeds_launched: int
    without_a_score: list[Any]
    lines: list[BoardLineAnswer]
    rollouts: Number | None
    tokens: Number | None
    training_hours: Number | None
    gained_per_1000_rollouts: Number | None
    facts: dict[str, Any]
    settings: dict[str, Any]
    runs: list[dict[str, Any]]


class StartAnswer(TypedDict):
    """Scores before training, of agents that began alike."""

    agents: list[str]
    seeds: list[int]
    lines: list[BoardLineAnswer]


class BoardAnswer(TypedDict):
    """reported: the paper's rows, which enter no comparison."""

    board: str
    address: str
    metric: str
    formula: str
    intervals: str
    baseline: str | None
    columns: list[BoardColumnAnswer]
    rows: list[BoardRowAnswer]
    starts: list[StartAnswer]
    reported: dict[str, Any] | None


@router.get("/boards", response=PageOf[BoardHead], summary="The boards, newest first")
def list_boards(
    request: HttpRequest,
    q: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_BOARDS)] = 8,
    cursor: Annotated[str, Query(max_length=6, pattern="^[0-9]*$")] = "",
) -> Any:
    """`query` names a board in /boards/table and /boards/file. `cursor`: `next` of the page before."""
    rows = sources(request.user, clean_text(q))
    start = int(cursor or 0)
    page = [board_of(request.user, source) for source in rows[start : start + limit]]  # each costs several queries
    items = [
        {
            "name": board.name,
            "query": board.address,
            "url": f"/leaderboard/board?{board.address}",
            "benchmarks": board.benchmarks,
            "num_runs": board.num_runs,
            "is_generated": board.is_generated,
        }
        for board in page
        if board is not None and board.with_results
    ]
    end = start + limit
    return {"items": items, "count": len(rows), "next": str(end) if end < len(rows) else None}


@router.get("/boards/table", response=BoardAnswer, summary="One board with the runs, settings and facts behind it")
def get_board(request: HttpRequest, query: Query[BoardParameters]) -> Any:  # type: ignore[valid-type]
    """Returns a board with the bytes of the page's JSON file."""
    return views.board_json(request)


@router.get("/boards/file/{kind}", response={200: None}, summary="One board as a file: csv, tex, html, lm-eval.csv")
def get_board_file(
    request: HttpRequest,
    kind: Literal["csv", "tex", "html", "lm-eval.csv"],
    query: Query[BoardParameters],  # type: ignore[valid-type]
) -> Any:
    """`lm-eval.csv`: what lm-evaluation-harness measured of checkpoints of its runs."""
    files: dict[str, Any] = {"csv": views.board_csv, "tex": views.board_tex, "html": views.report}
    return (files | {"lm-eval.csv": views.board_harness_csv})[kind](request)
