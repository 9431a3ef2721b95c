"""Which board an address names."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict

from hacrl_web.leaderboard.board.boards import MAX_SWEEPS, Board, alone_board, sweep_board
from hacrl_web.runs.models import Sweep
from hacrl_web.web.page_query import PageQuery, RowId, Text


class BoardAddress(PageQuery):
    """What names a board, `sweep` (up to 8) or `group` and `benchmark`, and a row; BoardSelection has the rest."""

    sweep: tuple[RowId, ...] = ()
    group: tuple[RowId, ...] = ()
    benchmark: tuple[RowId, ...] = ()
    row: Text = ""


def board_at(address: QueryDict, user: Any) -> Board | None:
    """The board that the query of an address names; None if there is none, or the user may not see all of it."""
    query = BoardAddress.read(address)
    if query.ignored:
        return None
    if query.sweep:
        ids = dict.fromkeys(query.sweep)
        by_id = Sweep.objects.visible_to(user).in_bulk(list(ids)) if len(ids) <= MAX_SWEEPS else {}
        return sweep_board(*(by_id[pk] for pk in ids)) if len(by_id) == len(ids) else None
    if query.group and query.benchmark:
        return alone_board(user, query.group[0], query.benchmark[0])
    return None
