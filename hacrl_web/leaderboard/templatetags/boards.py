"""Template tags that show a board: the page of a sweep shows its results without runs importing leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template

from hacrl_web.leaderboard.board.boards import Board, sweep_board
from hacrl_web.leaderboard.board.cells import BoardGroup
from hacrl_web.leaderboard.board.columns import Column
from hacrl_web.leaderboard.board.newest import NewestBoard, newest_board_of
from hacrl_web.leaderboard.board.paper import ReportedScores
from hacrl_web.leaderboard.board.rows import plain_path
from hacrl_web.leaderboard.board.selection import BoardSelection
from hacrl_web.leaderboard.board.table import make_table
from hacrl_web.leaderboard.render.context import ColumnHead, board_context
from hacrl_web.runs.templatetags.formats import middle, with_full_value

register = template.Library()
LONG_LETTERS = 32


register.simple_tag(sweep_board, name="board_of_item")
register.filter("setting_name", plain_path)


@register.simple_tag(takes_context=True)
def newest_board(context: template.Context) -> NewestBoard | None:
    """The board of the run that completed last, as Home shows it."""
    return newest_board_of(context["user"])


@register.inclusion_tag("leaderboard/_shown.html")
def show_board(board: Board, key: str, size: str = "whole") -> dict[str, Any]:
    """A board with the default selection. `key` makes the ids on the page unique.

    size: compact leaves out single agents, pictures and some columns.
    """
    is_compact = size == "compact"
    return board_context(make_table(board, BoardSelection()), key, is_compact=is_compact, is_brief=is_compact)


@register.filter
def middle_of_long(text: str) -> str:
    """A text with the middle left out if it is as long as a digest."""
    return middle(text) if len(text) > LONG_LETTERS else text


@register.filter
def head_title(heads: Sequence[ColumnHead], key: str) -> str:
    """The label of a column by its key, for a phone, on which rows are cards."""
    return next(head.label for head in heads if head.key == key)


@register.filter
def printed(line: ReportedScores, column: str) -> str:
    """A score as the paper printed it."""
    return line.score(column)


@register.filter
def in_column(group: BoardGroup, column: Column) -> str:
    """A row's number in one of the columns beside the scores, the full value on hover."""
    return with_full_value(group.value(column.name), column.text)
