"""The leaderboard's pictures, built in Python as Plotly figures and drawn by js/figures.js.

Colours are mid-tones that stand on light and dark grounds alike; the page sets text and grid colours itself.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from hacrl_web.insight.pictures import as_json
from hacrl_web.leaderboard.scores import Row

BEST, OTHER = "#2590a1", "#8b8e93"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")


def _label(row: Row) -> str:
    """Name of a row in a picture: its algorithm and what tells it from its like."""
    own = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in row.settings.items())
    label = f"{row.algorithm} ({own})" if own else row.algorithm
    return label if len(label) <= 48 else label[:47] + "…"


def _intervals(rows: list[Row]) -> dict[str, Any] | None:
    """Error bars of the 95 % intervals; None where all have one seed, or a cap would stand there without a bar."""
    widths = [row.final.half_width for row in rows]
    return {"type": "data", "array": widths, "thickness": 1.5, "width": 5} if any(widths) else None


def _colours(rows: list[Row]) -> list[str]:
    return [BEST if row.is_best else OTHER for row in rows]


def _plain(figure: go.Figure, x_title: str, y_title: str) -> dict[str, Any]:
    return as_json(
        figure,
        margin={"l": 56, "r": 16, "t": 16, "b": 48},
        showlegend=False,
        xaxis={"title": {"text": x_title}},
        yaxis={"title": {"text": y_title}, "rangemode": "tozero"},
    )


def accuracy_bars(rows: list[Row]) -> dict[str, Any]:
    """One bar for each row with its interval, and a mark where it started."""
    labels = [_label(row) for row in rows]
    bars = go.Bar(
        x=labels,
        y=[row.final.mean for row in rows],
        error_y=_intervals(rows),
        marker={"color": _colours(rows)},
        width=0.5,
        hovertemplate="%{x}: %{y:.3f}<extra></extra>",
    )
    start = go.Scatter(
        x=labels,
        y=[row.start.mean for row in rows],
        mode="markers",
        marker={"symbol": "line-ew", "size": 36, "line": {"width": 2, "color": "#d08300"}},
        hovertemplate="start: %{y:.3f}<extra></extra>",
    )
    return _plain(go.Figure([bars, start]), "", "held-out accuracy")


def front(rows: list[Row]) -> list[Row]:
    """The Pareto front, cheapest first: rows that no row of the same or a lower cost reaches."""
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.rollouts, -row.final.mean)):
        if not found or row.final.mean > found[-1].final.mean:
            found.append(row)
    return found


def pareto(rows: list[Row]) -> dict[str, Any]:
    """Accuracy against rollouts generated: a mark for each row, and a line where the front has more than one."""
    figure = go.Figure()
    joined = front(rows)
    if len(joined) > 1:
        figure.add_scatter(
            x=[row.rollouts for row in joined],
            y=[row.final.mean for row in joined],
            mode="lines",
            line={"color": BEST, "width": 1.5, "dash": "dot", "shape": "hv"},
            hoverinfo="skip",
            showlegend=False,
        )
    # Names stand in the legend: beside the marks, those of rows that cost the same would cover each other.
    for place, row in enumerate(rows):
        figure.add_scatter(
            x=[row.rollouts],
            y=[row.final.mean],
            error_y=_intervals([row]),
            mode="markers",
            name=_label(row),
            marker={"size": 11, "symbol": SYMBOLS[place % len(SYMBOLS)], "color": BEST if row.is_best else OTHER},
            hovertemplate="%{y:.3f} after %{x:,} rollouts",
        )
    plain = _plain(figure, "rollouts generated per run", "held-out accuracy")
    plain["layout"]["xaxis"]["rangemode"] = "tozero"
    plain["layout"] |= {"showlegend": True, "legend": {"orientation": "h", "y": -0.25, "itemclick": False}}
    return plain
