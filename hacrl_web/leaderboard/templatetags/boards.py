"""Template tags that put a board on a page: so the sweep page shows its results without runs importing leaderboard."""

from __future__ import annotations

from typing import Any

from django import template

from hacrl_web.leaderboard.figures import accuracy_bars, front, pareto
from hacrl_web.leaderboard.scores import Board, sweep_board
from hacrl_web.runs.models import Sweep

register = template.Library()


@register.simple_tag
def board_of(sweep: Sweep) -> Board:
    return sweep_board(sweep)


@register.inclusion_tag("leaderboard/_board.html")
def show_board(board: Board, key: str) -> dict[str, Any]:
    """A board's table and pictures; `key` makes the ids on the page unique."""
    return {
        "board": board,
        "key": key,
        "num_best": sum(row.is_best for row in board.rows),
        "has_intervals": any(row.final.half_width is not None for row in board.rows),
        "bars": accuracy_bars(board.rows),
        "pareto": pareto(board.rows),
        "front": front(board.rows),
    }
