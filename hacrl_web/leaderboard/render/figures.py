"""The board's pictures, built in Python as Plotly figures and drawn by js/lib/figures.js: the numbers of its Table.

Colours are mid-tones, legible on light and dark grounds; the page sets text and grid colours itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from hacrl_web.insight.plotly_figures import HEIGHT, as_json, plain_text
from hacrl_web.leaderboard.board.cells import BoardGroup, BoardTable
from hacrl_web.leaderboard.board.columns import COSTS
from hacrl_web.web.page_query import one_of
from hacrl_web.web.statistics import MeanInterval
from workers.contract import number_format

BEST, OTHER, AMBER = "#2590a1", "#8b8e93", "#d08300"
# Of rows, in every picture of a board; the baseline is grey.
ROW_COLOURS = (BEST, "#9a5fd0", "#c2548f", "#5b8f2f", "#4a7fd6", "#b0762a", "#2f9e7a", "#d0605a")
ROW_HEIGHT = 34  # pixels
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
LABEL_LETTERS = 48
BESIDE = 0.04  # of the picture's width: seeds are drawn beside their mean, not under it
SEED_BELOW = 0.22  # of a row's height, in the picture of differences
LEGEND_ROW = 20  # pixels; long names are below one another


def axis_label(group: BoardGroup) -> str:
    return plain_text(group.row.label, LABEL_LETTERS)


def _intervals(scores: Sequence[MeanInterval]) -> dict[str, Any] | None:
    """Error bars of the 95 % intervals; none for one seed or equal ones, whose bar would be a cap alone."""
    widths = [score.half_width or None for score in scores]
    return {"type": "data", "array": widths, "thickness": 1.5, "width": 5, "color": OTHER} if any(widths) else None


def _scored(table: BoardTable) -> list[tuple[BoardGroup, MeanInterval]]:
    return [(group, score) for group in table.groups if (score := table.cell(group).score) is not None]


def score_label(table: BoardTable) -> str:
    """What the pictures draw: `score (avg@4)`."""
    return f"{'mean score' if table.last.is_average else 'score'} ({table.last.measured_by})"


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
    beside = BESIDE * min(4, max(1, len(scored)))
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
        x=[place + beside for place, _, _ in dots],
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
    plain = _plain(figure, "", score_label(table))
    # Names as ticks, not as the axis itself: two that are cut to the same letters stay two places.
    names = [axis_label(group) for group, _ in scored]
    ends = [-0.5, max(0.5, len(scored) - 0.5)]
    plain["layout"]["xaxis"] |= {"tickvals": places, "ticktext": names, "zeroline": False, "range": ends}
    return plain


def _colour(table: BoardTable, group: BoardGroup) -> str:
    """The colour of a row, the same in every picture."""
    return OTHER if group.is_baseline else ROW_COLOURS[table.groups.index(group) % len(ROW_COLOURS)]


def differences(table: BoardTable) -> dict[str, Any] | None:
    """Each row's difference to the baseline with its interval, best above; None if no row has one."""
    rows = [(group, cell.difference) for group in table.groups if (cell := table.cell(group)).difference is not None]
    gains = [(group, gain) for group, gain in reversed(rows) if gain is not None and not group.is_baseline]
    if not gains:
        return None
    figure = go.Figure()
    figure.add_vline(x=0, line={"color": OTHER, "width": 1.5, "dash": "dot"})
    dots = [(place, *dot) for place, (group, _) in enumerate(gains) for dot in table.cell(group).gains.items()]
    figure.add_scatter(
        x=[gain for _, _, gain in dots],
        y=[place - SEED_BELOW for place, _, _ in dots],
        customdata=[seed for _, seed, _ in dots],
        mode="markers",
        marker={"size": 6, "color": OTHER, "symbol": "circle-open"},
        hovertemplate="seed %{customdata}: %{x:.3f}<extra></extra>",
    )
    figure.add_scatter(
        x=[gain.mean for _, gain in gains],
        y=list(range(len(gains))),
        error_x=_intervals([gain for _, gain in gains]),
        mode="markers+text",
        text=[number_format.format_signed_score(gain.mean) for _, gain in gains],
        textposition="top center",
        marker={
            "size": 11,
            "color": [_colour(table, group) for group, _ in gains],
            # Filled if the interval is above or below 0.
            "symbol": ["circle" if gain.is_clear else "circle-open" for _, gain in gains],
        },
        hovertemplate="%{y}: %{text}<extra></extra>",
        cliponaxis=False,
    )
    plain = _plain(figure, f"difference to {plain_text(table.baseline, LABEL_LETTERS)}", "")
    names = [axis_label(group) for group, _ in gains]
    plain["layout"]["yaxis"] |= {
        "tickvals": list(range(len(gains))), "ticktext": names, "zeroline": False, "automargin": True,
        "range": [-0.6, len(gains) - 0.2],
    }  # fmt: skip
    low, high = _range_of_labels([gain for _, gain in gains])
    seeds = [gain for _, _, gain in dots]
    plain["layout"]["xaxis"]["range"] = [
        min([low, *(1.05 * one for one in seeds)]),
        max([high, *(1.05 * one for one in seeds)]),
    ]
    plain["layout"]["height"] = max(180, 100 + ROW_HEIGHT * len(gains))
    return plain


def _range_of_labels(gains: Sequence[MeanInterval]) -> list[float]:
    """The x axis of differences: 0, the marks and their intervals, with room for half a label beside each mark."""
    halves = [gain.half_width or 0.0 for gain in gains]
    low = min(0.0, *(gain.mean - half for gain, half in zip(gains, halves, strict=True)))
    high = max(0.0, *(gain.mean + half for gain, half in zip(gains, halves, strict=True)))
    span = (high - low) or 1e-3
    means = [gain.mean for gain in gains]
    return [min(low - 0.05 * span, min(means) - 0.18 * span), max(high + 0.05 * span, max(means) + 0.18 * span)]


def front(table: BoardTable) -> list[BoardGroup]:
    """The Pareto front, cheapest first: rows that no row of the same or a lower cost reaches.

    None on a board of several agent groups, whose scores are no ranking.
    """
    if len(table.sections) > 1:
        return []
    points: list[tuple[BoardGroup, MeanInterval]] = []
    costs = [(group.value(table.selection.cost), group, score) for group, score in _scored(table)]
    priced = [(cost, group, score) for cost, group, score in costs if cost]
    for _, group, score in sorted(priced, key=lambda item: (item[0], -item[2].mean)):
        if not points or score.mean > points[-1][1].mean:
            points.append((group, score))
    return [group for group, _ in points]


def pareto(table: BoardTable) -> dict[str, Any]:
    """Score against the chosen cost: a mark for each row, and a line if the front has more than one."""
    figure = go.Figure()
    joined = front(table)
    if len(joined) > 1:
        figure.add_scatter(
            x=[group.value(table.selection.cost) for group in joined],
            y=[table.cell(group).score.mean for group in joined],  # type: ignore[union-attr]
            mode="lines",
            line={"color": BEST, "width": 1.5, "dash": "dot", "shape": "hv"},
            hoverinfo="skip",
            showlegend=False,
        )
    # Names are in the legend: beside the marks, those of rows with the same cost would cover each other.
    for place, (group, score) in enumerate(_scored(table)):
        figure.add_scatter(
            x=[group.value(table.selection.cost)],
            y=[score.mean],
            error_y=_intervals([score]),
            mode="markers",
            name=axis_label(group),
            marker={"size": 11, "symbol": SYMBOLS[place % len(SYMBOLS)], "color": _colour(table, group)},
            hovertemplate="%{y:.3f} at %{x:,}",
        )
    plain = _plain(figure, COSTS[table.selection.cost], score_label(table), **_legend(len(table.groups)))
    plain["layout"]["xaxis"]["rangemode"] = "tozero"
    return plain


def _legend(num_names: int) -> dict[str, Any]:
    """Names below the picture, which grows by their height."""
    place = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "itemclick": False}
    return {"showlegend": True, "legend": place, "height": HEIGHT + LEGEND_ROW * max(0, num_names - 2)}


# ---- a setting that varies over the rows: the axis of the sensitivity picture ----------------------------------------


@dataclass(frozen=True)
class Grid:
    """settings: numbers that vary within an algorithm, by dotted path.  curves: by label, rows of one algorithm that
    differ only in x: its value and the score, by x.
    """

    settings: list[str]
    x: str
    curves: dict[str, list[tuple[float, MeanInterval]]]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def make_grid(table: BoardTable) -> Grid | None:
    """None if no setting has two numbers among the rows of one algorithm."""
    scored = _scored(table)
    values: dict[tuple[str, str], set[float]] = {}
    for group, _ in scored:
        for path in group.row.distinctions:
            number = _number(group.row.settings.get(path))
            if number is not None:
                values.setdefault((path, group.row.algorithm), set()).add(number)
    settings = sorted({path for (path, _), numbers in values.items() if len(numbers) > 1})
    if not settings:
        return None
    x = one_of(table.selection.x, settings, settings[0])
    curves: dict[str, list[tuple[float, MeanInterval]]] = {}
    for group, score in scored:
        number = _number(group.row.settings.get(x))
        if number is not None and x in group.row.distinctions:  # not so if the algorithm does not use the setting
            curves.setdefault(group.row.label_without(x), []).append((number, score))
    return Grid(settings, x, {label: sorted(points, key=lambda one: one[0]) for label, points in curves.items()})


def sensitivity(table: BoardTable, grid: Grid) -> dict[str, Any]:
    """Score over one setting, a line for each combination of the others, and a level line at the baseline's mean."""
    figure = go.Figure()
    for place, (label, points) in enumerate(grid.curves.items()):
        figure.add_scatter(
            x=[x for x, _ in points],
            y=[score.mean for _, score in points],
            error_y=_intervals([score for _, score in points]),
            mode="lines+markers",
            name=plain_text(label, LABEL_LETTERS),
            meta={"place": place},
            line={"dash": ("solid", "dash", "dot")[place // 8 % 3]},
            hovertemplate=f"{grid.x.rpartition('.')[2]} %{{x}}: %{{y:.3f}}",
        )
    for group, score in _scored(table):
        if group.is_baseline and grid.x not in group.row.distinctions:
            line = {"color": OTHER, "width": 1.5, "dash": "dot"}
            figure.add_hline(y=score.mean, line=line, annotation_text=axis_label(group))
    return _plain(figure, grid.x, score_label(table), **_legend(len(grid.curves)))
