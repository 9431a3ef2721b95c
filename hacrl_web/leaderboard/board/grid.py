"""Settings that vary over a board's rows: the axes of the sensitivity picture and of its heat map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hacrl_web.leaderboard.board.cells import BoardGroup, BoardTable, Cell
from hacrl_web.leaderboard.board.choice import BoardSelection


@dataclass(frozen=True)
class GridPoint:
    """One row on the axis."""

    x: float
    group: BoardGroup
    cell: Cell


@dataclass(frozen=True)
class Curve:
    """Rows of one algorithm that differ in nothing but the axis."""

    label: str
    points: tuple[GridPoint, ...]  # by x


@dataclass(frozen=True)
class Grid:
    """What varies, what is drawn over it, and the curves."""

    settings: tuple[str, ...]  # numbers that vary within an algorithm, by dotted path
    x: str
    y: str  # second axis, of the heat map; empty where only one setting varies
    curves: tuple[Curve, ...]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def varying(groups: Sequence[BoardGroup]) -> list[str]:
    """Settings with two or more numbers among the rows of one algorithm."""
    values: dict[tuple[str, str], set[float]] = {}
    for group in groups:
        for path, value in group.row.settings.items():
            number = _number(value)
            if number is not None and path in group.row.told_apart_by:
                values.setdefault((path, group.row.algorithm), set()).add(number)
    return sorted({path for (path, _), numbers in values.items() if len(numbers) > 1})


def make_grid(table: BoardTable, choice: BoardSelection) -> Grid | None:
    """None where no number varies."""
    scored = [group for group in table.groups if table.cell(group).score is not None]
    settings = varying(scored)
    if not settings:
        return None
    x = choice.x if choice.x in settings else settings[0]
    others = [path for path in settings if path != x]
    y = choice.y if choice.y in others else next(iter(others), "")
    return Grid(tuple(settings), x, y, tuple(_curves(table, scored, x)))


def _curves(table: BoardTable, groups: Sequence[BoardGroup], x: str) -> list[Curve]:
    """A row without a number there, such as an algorithm that has no use for the setting, is on no curve."""
    curves: dict[str, list[GridPoint]] = {}
    for group in groups:
        number = _number(group.row.settings.get(x))
        if number is not None and x in group.row.told_apart_by:
            curves.setdefault(group.row.label_without(x), []).append(GridPoint(number, group, table.cell(group)))
    return [Curve(label, tuple(sorted(points, key=lambda point: point.x))) for label, points in curves.items()]


def cells_of(grid: Grid, curves_algorithm: str) -> dict[tuple[float, float], Cell]:
    """(x, y) -> score of one algorithm's rows, where only these two settings tell them apart."""
    cells = {}
    for curve in grid.curves:
        for point in curve.points:
            row = point.group.row
            y = _number(row.settings.get(grid.y))
            if row.algorithm == curves_algorithm and y is not None and set(row.told_apart_by) <= {grid.x, grid.y}:
                cells[point.x, y] = point.cell
    return cells
