"""The leaderboard: the list of boards, one board as its address selects it, a row's runs, and a board as files."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from hacrl_web.insight.evaluations.harness_results import HarnessLine, lines_of_checkpoints, rows_for_csv
from hacrl_web.leaderboard.board import paper
from hacrl_web.leaderboard.board.boards import boards, sources
from hacrl_web.leaderboard.board.cells import BoardTable
from hacrl_web.leaderboard.board.columns import COLUMNS, COSTS
from hacrl_web.leaderboard.board.rows import NOT_RECORDED
from hacrl_web.leaderboard.board.selection import CELL_CONTENTS, BoardAddress, baseline_labels, board_at, read_selection
from hacrl_web.leaderboard.board.table import make_table
from hacrl_web.leaderboard.render import exports, latex
from hacrl_web.leaderboard.render.context import board_context, board_report, seed_runs
from hacrl_web.leaderboard.render.figures import make_grid
from hacrl_web.web.page_query import PageQuery, Text, page_of
from hacrl_web.web.streaming import download, download_csv, file_slug

PAGE_SIZE = 8


class IndexQuery(PageQuery):
    """q: text to search the names of boards by."""

    q: Text = ""


@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """Boards, newest first: a sweep, or the single runs of one group on one benchmark."""
    query = IndexQuery.read(request.GET)
    page = page_of(request, sources(request.user, query.q), PAGE_SIZE)
    page.object_list = boards(request.user, page.object_list)  # only this page's are computed
    return render(request, "leaderboard/index.html", {"page": page, "search": query.q, "query": query.encode()})


def _table(request: HttpRequest) -> BoardTable:
    """The table of the board that the address names. Error: Http404."""
    board = board_at(request.GET, request.user)
    if board is None:
        raise Http404
    return make_table(board, read_selection(request.GET, board))


def _section(table: BoardTable) -> paper.PaperSection | None:
    names = [name for column in table.columns if not column.is_average for name in column.benchmarks]
    return paper.paper_section(names, table.selection.reported)


def _harness_lines(request: HttpRequest, table: BoardTable) -> list[HarnessLine]:
    """What lm-evaluation-harness measured of checkpoints of the runs on the board."""
    runs = [result.run.pk for group in table.groups for result in group.row.results.values()]
    return lines_of_checkpoints(runs, request.user)


def _address(request: HttpRequest, table: BoardTable) -> str:
    return request.build_absolute_uri(f"{reverse('leaderboard:board')}?{table.selection.query(table.board)}")


@require_GET
def board(request: HttpRequest) -> HttpResponse:
    """One board; an address that names none, as when nothing was ticked, leads to the list."""
    if "sweep" not in request.GET and "group" not in request.GET:
        return redirect("leaderboard:index")
    table = _table(request)
    shown = board_context(table, "board")
    # The picture of differences, or without a baseline that of seeds, stands above the controls.
    lead, *pictures = shown["pictures"]
    context = shown | {
        "lead": lead,
        "is_led": True,
        "pictures": pictures,
        "is_sortable": True,
        # Parameters that a form passes on: it has no field for them.
        "passed_on": [
            *table.board.source_query,
            ("sort", table.selection.sort),
            ("reported", table.selection.reported),
        ],
        "passed_on_by_reported": table.selection.parameters(table.board, reported=""),
        "section": _section(table),
        "paper_keys": paper.keys(),
        "paper_source": paper.SOURCE,
        "baselines": baseline_labels(table.board),
        "algorithms": sorted({row.algorithm for row in table.board.rows}),
        "cell_contents": CELL_CONTENTS,
        "extra_columns": COLUMNS,
        "costs": COSTS,
        "grid": make_grid(table),
        "harness_lines": _harness_lines(request, table),
    }
    return render(request, "leaderboard/board.html", context)


@require_GET
def row(request: HttpRequest) -> HttpResponse:
    """One row: its runs by seed, its settings and its facts."""
    table = _table(request)
    row_id = BoardAddress.read(request.GET).row
    board_row = next((group.row for group in table.groups if group.row.id == row_id), None)
    if board_row is None:
        raise Http404
    context = board_context(table, "row", is_compact=True) | {
        "row": board_row,
        "not_recorded": NOT_RECORDED,
        "runs": seed_runs(table, board_row),
        "scores": [
            {"seed": seed, "agent": agent, "benchmark": benchmark, "score": score}
            for seed, result in board_row.results.items()
            for agent, scores in result.final.items()
            for benchmark, score in scores.items()
        ],
    }
    return render(request, "leaderboard/row.html", context)


@require_GET
def board_csv(request: HttpRequest) -> StreamingHttpResponse:
    """The table, a line for each agent of each row."""
    table = _table(request)
    return download_csv(request, exports.csv_rows(table, _section(table)), "leaderboard.csv")


@require_GET
def board_harness_csv(request: HttpRequest) -> StreamingHttpResponse:
    """The lines of lm-evaluation-harness below the table."""
    return download_csv(request, rows_for_csv(_harness_lines(request, _table(request))), "leaderboard-lm-eval.csv")


@require_GET
def board_tex(request: HttpRequest) -> StreamingHttpResponse:
    """The table as it is shown, for LaTeX."""
    table = _table(request)
    text = latex.latex(table, _section(table), _address(request, table))
    return download(request, iter([text]), f"{file_slug(table.board.name) or 'leaderboard'}.tex", "text/x-tex")


@require_GET
def board_json(request: HttpRequest) -> JsonResponse:
    """The table with the runs, settings and facts behind it."""
    table = _table(request)
    content = exports.board_as_json(table, _section(table), _address(request, table))
    headers = {"Content-Disposition": 'attachment; filename="leaderboard.json"'}
    return JsonResponse(content, json_dumps_params={"indent": 1}, headers=headers)


@require_GET
def report(request: HttpRequest) -> StreamingHttpResponse:
    """One page without scripts or anything fetched."""
    table = _table(request)
    return download(request, iter([board_report(table, _address(request, table))]), "report.html", "text/html")
