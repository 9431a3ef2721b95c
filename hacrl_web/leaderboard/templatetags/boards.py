"""Template tags that show a board: the page of a sweep shows its results without runs importing leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template
from django.utils.html import format_html

from hacrl_web.leaderboard.board.boards import Board, sweep_board
from hacrl_web.leaderboard.board.cells import BoardGroup, BoardLine, BoardTable, Cell
from hacrl_web.leaderboard.board.newest import NewestBoard, newest_board_of
from hacrl_web.leaderboard.board.paper import ReportedScores
from hacrl_web.leaderboard.board.rows import plain_path
from hacrl_web.leaderboard.board.selection import COSTS, BoardSelection
from hacrl_web.leaderboard.board.table import make_table
from hacrl_web.leaderboard.render.context import ColumnHead, board_context
from hacrl_web.runs.templatetags.formats import MISSING, count, duration, middle, plain_significant, signed

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
def last_cell(line: BoardLine) -> Cell:
    """The cell of the average, or of the one benchmark."""
    return list(line.cells.values())[-1]


@register.filter
def middle_of_long(text: str) -> str:
    """A text with the middle left out if it is as long as a digest."""
    return middle(text) if len(text) > LONG_LETTERS else text


@register.filter
def head_title(heads: Sequence[ColumnHead], key: str) -> str:
    """The title of a column by its key, for a phone, on which rows are cards."""
    head = next(head for head in heads if head.key == key)
    return f"{head.title} {head.below}" if key in COSTS or key == "per_1000" else head.title


@register.filter
def printed(line: ReportedScores, column: str) -> str:
    """A score as the paper printed it."""
    return line.score(column)


@register.simple_tag
def cost_of_row(table: BoardTable, group: BoardGroup, name: str) -> str:
    """A row's mean cost per run, or its gain per 1,000 rollouts."""
    if name == "per_1000":
        gain = table.per_1000(group)
        return MISSING if gain is None else format_html('<span title="{}">{}</span>', gain, signed(gain))
    value = table.cost(group.row, name)
    if name != "training_hours":
        return count(value)
    time = duration(group.row.mean_of("training_seconds"))
    return format_html('<span title="{}: {}">{}</span>', value, time, plain_significant(value))
