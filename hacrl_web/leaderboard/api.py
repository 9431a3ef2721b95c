"""The leaderboard's part of the REST API: the boards, and one board as the page's files hold it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema

from hacrl_web.leaderboard import views
from hacrl_web.leaderboard.answers import BoardAnswer, BoardHead
from hacrl_web.leaderboard.board.boards import board_of, sources
from hacrl_web.web.schemas import PageOf

MAX_BOARDS = 50
router = Router(tags=["leaderboard"])


class BoardQuery(Schema):
    """The address of the page: `sweep` (repeated), or `group` and `benchmark`; the rest is how it looks."""

    sweep: list[str] = Query([])
    group: list[str] = Query([])
    benchmark: list[str] = Query([])
    metric: str = ""
    baseline: str = ""
    show: str = ""
    on: list[str] = Query([])
    algorithm: list[str] = Query([])
    column: list[str] = Query([])
    sort: str = ""
    cost: str = ""
    x: str = ""
    y: str = ""
    reported: str = ""


@router.get("/boards", response=PageOf[BoardHead], summary="The boards, newest first")
def list_boards(
    request: HttpRequest,
    q: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_BOARDS)] = 8,
    cursor: Annotated[str, Query(max_length=6, pattern="^[0-9]*$")] = "",
) -> Any:
    """`query` names a board in /boards/table and /boards/file. `cursor`: `next` of the page before."""
    rows = sources(request.user, q.replace("\x00", "").strip())
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


@router.get("/boards/table", response=BoardAnswer, summary="One board with all that stands behind it")
def get_board(request: HttpRequest, query: Query[BoardQuery]) -> Any:
    """The same bytes as the page's JSON file."""
    return views.board_json(request)


@router.get("/boards/file/{kind}", response={200: None}, summary="One board as a file: csv, tex, html")
def get_board_file(request: HttpRequest, kind: Literal["csv", "tex", "html"], query: Query[BoardQuery]) -> Any:
    return {"csv": views.board_csv, "tex": views.board_tex, "html": views.report}[kind](request)
