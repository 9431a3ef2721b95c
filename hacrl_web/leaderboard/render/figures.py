"""The board's pictures, built in Python as Plotly figures and drawn by js/lib/figures.js: the numbers of its Table.

Colours are mid-tones that stand on light and dark grounds alike; the page sets text and grid colours itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from hacrl_web.insight.plotly_figures import HEIGHT, as_json
from hacrl_web.insight.statistics import MeanInterval
from hacrl_web.leaderboard.board.cells import BoardGroup, BoardTable, Cell
from hacrl_web.leaderboard.board.selection import COSTS
from hacrl_web.web.page_query import one_of

BEST, OTHER, AMBER = "#2590a1", "#8b8e93", "#d08300"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
LABEL_LETTERS = 48
BESIDE = 0.16  # of the way to the next row: seeds stand beside their mean, not under it
LEGEND_ROW = 20  # pixels; names stand below one another where they are long


def axis_label(group: BoardGroup) -> str:
    """Name of a row in a picture; Plotly takes markup, so that an angle bracket is written out."""
    text = group.row.label
    text = text if len(text) <= LABEL_LETTERS else text[: LABEL_LETTERS - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _intervals(scores: Sequence[MeanInterval]) -> dict[str, Any] | None:
    """Error bars of the 95 % intervals; none of one seed or of equal ones: a cap would stand there without a bar."""
    widths = [score.half_width or None for score in scores]
    return {"type": "data", "array": widths, "thickness": 1.5, "width": 5, "color": OTHER} if any(widths) else None


def _scored(table: BoardTable) -> list[tuple[BoardGroup, MeanInterval]]:
    return [(group, score) for group in table.groups if (score := table.cell(group).score) is not None]


def score_words(table: BoardTable) -> str:
    """What the pictures draw: `score (avg@4)`."""
    what = "mean score" if table.last.is_average else "score"
    return f"{what} ({table.last.measured_by})"


def _plain(figure: go.Figure, x_title: str, y_title: str, **layout: Any) -> dict[str, Any]:
    plain = as_json(
        figure,
        margin={"l": 56, "r": 16, "t": 16, "b": 48},
        showlegend=False,
        xaxis={"title": {"text": x_title}},
        yaxis={"title": {"text": y_title}, "rangemode": "tozero"},
    )
    plain["layout"] |= layout
    return plain


def seed_dots(table: BoardTable) -> dict[str, Any]:
    """Each seed as a dot, the mean over them with its interval, and a mark where the row started."""
    scored = _scored(table)
    places = list(range(len(scored)))
    dots = [(place, *dot) for place, (group, _) in enumerate(scored) for dot in table.cell(group).by_seed.items()]
    figure = go.Figure()
    figure.add_scatter(
        x=places,
        y=[group.head.start.mean if group.head.start else None for group, _ in scored],
        mode="markers",
        marker={"symbol": "line-ew", "size": 30, "line": {"width": 2, "color": AMBER}},
        hovertemplate="start: %{y:.3f}<extra></extra>",
    )
    figure.add_scatter(
        x=[place + BESIDE for place, _, _ in dots],
        y=[value for _, _, value in dots],
        customdata=[seed for _, seed, _ in dots],
        mode="markers",
        marker={"size": 6, "color": OTHER, "symbol": "circle-open"},
        hovertemplate="seed %{customdata}: %{y:.3f}<extra></extra>",
    )
    figure.add_scatter(
        x=places,
        y=[score.mean for _, score in scored],
        error_y=_intervals([score for _, score in scored]),
        mode="markers",
        marker={"size": 10, "symbol": "diamond", "color": [_colour(table, group) for group, _ in scored]},
        hovertemplate="mean of %{text}: %{y:.3f}<extra></extra>",
        text=[axis_label(group) for group, _ in scored],
    )
    plain = _plain(figure, "", score_words(table))
    # Names as ticks, not as the axis itself: two that are cut to the same letters stay two places.
    names = [axis_label(group) for group, _ in scored]
    ends = [-0.5, max(0.5, len(scored) - 0.5)]
    plain["layout"]["xaxis"] |= {"tickvals": places, "ticktext": names, "zeroline": False, "range": ends}
    return plain


def _colour(table: BoardTable, group: BoardGroup) -> str:
    return BEST if table.cell(group).mark else OTHER


def front(table: BoardTable) -> list[BoardGroup]:
    """The Pareto front, cheapest first: rows that no row of the same or a lower cost reaches."""
    points: list[tuple[BoardGroup, MeanInterval]] = []
    costs = [(table.cost(group.row, table.selection.cost), group, score) for group, score in _scored(table)]
    priced = [(cost, group, score) for cost, group, score in costs if cost]
    for _, group, score in sorted(priced, key=lambda item: (item[0], -item[2].mean)):
        if not points or score.mean > points[-1][1].mean:
            points.append((group, score))
    return [group for group, _ in points]


def pareto(table: BoardTable) -> dict[str, Any]:
    """Score against the chosen cost: a mark for each row, and a line where the front has more than one."""
    figure = go.Figure()
    joined = front(table)
    if len(joined) > 1:
        figure.add_scatter(
            x=[table.cost(group.row, table.selection.cost) for group in joined],
            y=[table.cell(group).score.mean for group in joined],  # type: ignore[union-attr]
            mode="lines",
            line={"color": BEST, "width": 1.5, "dash": "dot", "shape": "hv"},
            hoverinfo="skip",
            showlegend=False,
        )
    # Names stand in the legend: beside the marks, those of rows that cost the same would cover each other.
    for place, (group, score) in enumerate(_scored(table)):
        figure.add_scatter(
            x=[table.cost(group.row, table.selection.cost)],
            y=[score.mean],
            error_y=_intervals([score]),
            mode="markers",
            name=axis_label(group),
            marker={"size": 11, "symbol": SYMBOLS[place % len(SYMBOLS)], "color": _colour(table, group)},
            hovertemplate="%{y:.3f} at %{x:,}",
        )
    plain = _plain(figure, COSTS[table.selection.cost], score_words(table), **_legend(len(table.groups)))
    plain["layout"]["xaxis"]["rangemode"] = "tozero"
    return plain


def _legend(num_names: int) -> dict[str, Any]:
    """Names below the picture, which is the higher for them."""
    place = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "itemclick": False}
    return {"showlegend": True, "legend": place, "height": HEIGHT + LEGEND_ROW * max(0, num_names - 2)}


# ---- settings that vary over the rows: the axes of the sensitivity picture and of the heat map -----------------------


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
            if number is not None and path in group.row.distinctions:
                values.setdefault((path, group.row.algorithm), set()).add(number)
    return sorted({path for (path, _), numbers in values.items() if len(numbers) > 1})


def make_grid(table: BoardTable) -> Grid | None:
    """None where no number varies."""
    scored = [group for group in table.groups if table.cell(group).score is not None]
    settings = varying(scored)
    if not settings:
        return None
    x = one_of(table.selection.x, settings, settings[0])
    others = [path for path in settings if path != x]
    y = one_of(table.selection.y, others, next(iter(others), ""))
    return Grid(tuple(settings), x, y, tuple(_curves(table, scored, x)))


def _curves(table: BoardTable, groups: Sequence[BoardGroup], x: str) -> list[Curve]:
    """A row without a number there, such as an algorithm that has no use for the setting, is on no curve."""
    curves: dict[str, list[GridPoint]] = {}
    for group in groups:
        number = _number(group.row.settings.get(x))
        if number is not None and x in group.row.distinctions:
            curves.setdefault(group.row.label_without(x), []).append(GridPoint(number, group, table.cell(group)))
    return [Curve(label, tuple(sorted(points, key=lambda point: point.x))) for label, points in curves.items()]


def cells_of(grid: Grid, curves_algorithm: str) -> dict[tuple[float, float], Cell]:
    """(x, y) -> score of one algorithm's rows, where only these two settings tell them apart."""
    cells = {}
    for curve in grid.curves:
        for point in curve.points:
            row = point.group.row
            y = _number(row.settings.get(grid.y))
            if row.algorithm == curves_algorithm and y is not None and set(row.distinctions) <= {grid.x, grid.y}:
                cells[point.x, y] = point.cell
    return cells


def sensitivity(table: BoardTable, grid: Grid) -> dict[str, Any]:
    """Score over one setting, a line for each combination of the others; the baseline's own mean lies across."""
    figure = go.Figure()
    for place, curve in enumerate(grid.curves):
        scores = [point.cell.score for point in curve.points if point.cell.score is not None]
        figure.add_scatter(
            x=[point.x for point in curve.points],
            y=[score.mean for score in scores],
            error_y=_intervals(scores),
            mode="lines+markers",
            name=_cut(curve),
            meta={"place": place},
            line={"dash": ("solid", "dash", "dot")[place // 8 % 3]},
            hovertemplate=f"{_last(grid.x)} %{{x}}: %{{y:.3f}}",
        )
    for group in table.groups:
        score = table.cell(group).score
        if group.is_baseline and score is not None and grid.x not in group.row.distinctions:
            line = {"color": OTHER, "width": 1.5, "dash": "dot"}
            figure.add_hline(y=score.mean, line=line, annotation_text=axis_label(group))
    return _plain(figure, grid.x, score_words(table), **_legend(len(grid.curves)))


def _cut(curve: Curve) -> str:
    text = curve.label if len(curve.label) <= LABEL_LETTERS else curve.label[: LABEL_LETTERS - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def heat_map(table: BoardTable, grid: Grid) -> dict[str, Any] | None:
    """Score over two settings, of the algorithm with the most of them; None where fewer than four cells are filled."""
    algorithms = sorted({group.row.algorithm for group in table.groups})
    cells = max((cells_of(grid, name) for name in algorithms), key=len, default={})
    if not grid.y or len(cells) < 4:
        return None
    xs, ys = (sorted({pair[axis] for pair in cells}) for axis in (0, 1))
    scores: list[list[MeanInterval | None]] = [[_score(cells, x, y) for x in xs] for y in ys]
    figure = go.Figure(
        go.Heatmap(
            x=[f"{x:g}" for x in xs],
            y=[f"{y:g}" for y in ys],
            z=[[None if score is None else score.mean for score in line] for line in scores],
            text=[["" if score is None else words(score) for score in line] for line in scores],
            texttemplate="%{text}",
            colorscale="Viridis",
            hovertemplate=f"{_last(grid.x)} %{{x}}, {_last(grid.y)} %{{y}}: %{{text}}<extra></extra>",
        )
    )
    plain = _plain(figure, grid.x, grid.y)
    # As categories: the values of a grid are seldom evenly spaced, and a cell of no run must stay empty.
    for axis in ("xaxis", "yaxis"):
        plain["layout"][axis] |= {"type": "category", "rangemode": "normal"}
    return plain


def _score(cells: Mapping[tuple[float, float], Any], x: float, y: float) -> MeanInterval | None:
    return cells[x, y].score if (x, y) in cells else None


def words(score: MeanInterval) -> str:
    """`0.683 ± 0.020`, as in a cell of a picture."""
    width = f" ± {score.half_width:.3f}" if score.half_width else ""
    return f"{score.mean:.3f}{width}"
