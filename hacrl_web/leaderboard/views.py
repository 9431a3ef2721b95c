"""The leaderboard: the list of boards, one board with its look in the address, a row's runs, and a board as files."""

from __future__ import annotations

from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from hacrl_web.leaderboard.board import identity, paper
from hacrl_web.leaderboard.board.boards import MAX_SWEEPS, Board, alone_board, boards, sources, sweep_board
from hacrl_web.leaderboard.board.cells import BoardTable
from hacrl_web.leaderboard.board.choice import COSTS, EXTRA, SHOWN, BoardSelection, baseline_labels, read_choice
from hacrl_web.leaderboard.board.grid import make_grid
from hacrl_web.leaderboard.board.table import make_table
from hacrl_web.leaderboard.render import exports, latex, view
from hacrl_web.leaderboard.render.report import board_report as report_of
from hacrl_web.leaderboard.render.report import seed_runs
from hacrl_web.runs.models import Sweep
from hacrl_web.web.streaming import download

PAGE_SIZE = 8
MAX_DIGITS = 18  # of an id: more fit no column


@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """Boards, newest first: a sweep, or the single runs of one group on one benchmark. `q` searches their names."""
    search = request.GET.get("q", "").replace("\x00", "")[:200].strip()
    page = Paginator(sources(request.user, search), PAGE_SIZE).get_page(request.GET.get("page"))
    page.object_list = boards(request.user, page.object_list)  # only this page's are worked out
    query = urlencode({"q": search} if search else {})
    return render(request, "leaderboard/index.html", {"page": page, "search": search, "query": query})


def _ids(request: HttpRequest, name: str) -> list[int]:
    """The numbers that the address gives. Error: Http404 where one is none."""
    texts = request.GET.getlist(name)
    if not all(text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS for text in texts):
        raise Http404
    return list(dict.fromkeys(int(text) for text in texts))


def _board(request: HttpRequest) -> Board:
    """The board that the address names: `sweep` (up to 8), or `group` and `benchmark`. Error: Http404."""
    ids = _ids(request, "sweep")
    if ids:
        by_id = {sweep.pk: sweep for sweep in Sweep.objects.visible_to(request.user).filter(pk__in=ids[:MAX_SWEEPS])}
        if len(by_id) != len(ids):
            raise Http404
        return sweep_board(*(by_id[pk] for pk in ids))
    groups, benchmarks = _ids(request, "group"), _ids(request, "benchmark")
    board = alone_board(request.user, groups[0], benchmarks[0]) if groups and benchmarks else None
    if board is None:
        raise Http404
    return board


def _table(request: HttpRequest) -> tuple[BoardTable, BoardSelection]:
    board = _board(request)
    choice = read_choice(request.GET, board)
    return make_table(board, choice), choice


def _section(table: BoardTable) -> paper.PaperSection | None:
    names = [name for column in table.columns if not column.is_average for name in column.benchmarks]
    return paper.paper_section(names, table.choice.reported)


def _address(request: HttpRequest, table: BoardTable) -> str:
    return request.build_absolute_uri(f"{reverse('leaderboard:board')}?{table.choice.query(table.board)}")


@require_GET
def board(request: HttpRequest) -> HttpResponse:
    """One board; the address holds all of its look. One that names none leads to the list: nothing was ticked there."""
    if "sweep" not in request.GET and "group" not in request.GET:
        return redirect("leaderboard:index")
    table, choice = _table(request)
    grid = make_grid(table, choice)
    context = view.context(table, "board") | {
        "is_sortable": True,
        # What each form does not ask for itself.
        "kept": [*table.board.source_query, ("sort", choice.sort), ("reported", choice.reported)],
        "kept_beside_reported": choice.words(table.board, reported=""),
        "section": _section(table),
        "paper_keys": paper.keys(),
        "paper_source": paper.SOURCE,
        "baselines": baseline_labels(table.board),
        "algorithms": sorted({row.algorithm for row in table.board.rows}),
        "shown_as": SHOWN,
        "extra_columns": EXTRA,
        "costs": COSTS,
        "grid": grid,
    }
    return render(request, "leaderboard/board.html", context)


@require_GET
def row(request: HttpRequest) -> HttpResponse:
    """What stands behind one row: its runs by seed, its settings and its facts."""
    table, _ = _table(request)
    group = next((group for group in table.groups if group.row.id == request.GET.get("row")), None)
    if group is None:
        raise Http404
    board_row = group.row
    context = view.context(table, "row", is_compact=True) | {
        "row": board_row,
        "not_recorded": identity.NOT_RECORDED,
        "runs": [
            {
                "one": one,
                "run": board_row.results[one.seed].run if one.seed in board_row.results else board_row.others[one.seed],
            }
            for one in seed_runs(table, board_row)
        ],
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
    table, _ = _table(request)
    return download(request, exports.csv_lines(table, _section(table)), "leaderboard.csv", "text/csv")


@require_GET
def board_tex(request: HttpRequest) -> StreamingHttpResponse:
    """The table as it is shown, for LaTeX."""
    table, _ = _table(request)
    text = latex.latex(table, _section(table), _address(request, table))
    return download(request, iter([text]), "leaderboard.tex", "text/x-tex")


@require_GET
def board_json(request: HttpRequest) -> JsonResponse:
    """The table with all that stands behind it."""
    table, _ = _table(request)
    content = exports.board_as_json(table, _section(table), _address(request, table))
    saved = {"Content-Disposition": 'attachment; filename="leaderboard.json"'}
    return JsonResponse(content, json_dumps_params={"indent": 1}, headers=saved)


@require_GET
def report(request: HttpRequest) -> StreamingHttpResponse:
    """One page that stands alone."""
    table, _ = _table(request)
    return download(request, iter([report_of(table, _address(request, table))]), "report.html", "text/html")
