"""What all Plotly pictures share: their layout, their texts, and their form as JSON, which js/lib/figures.js draws.

Text and grid colours are set by the page, for light and dark grounds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

HEIGHT = 320
# Label, x, y, and what its colour follows: the place of an agent, or the number of a run.
DrawnLine = tuple[str, Sequence[float | None], Sequence[float], dict[str, int]]
LEGEND_BELOW = {
    "orientation": "h",
    "y": -0.3,
    "yanchor": "top",
    "traceorder": "normal",
    "itemclick": False,
    "itemdoubleclick": False,
}


def as_json(figure: go.Figure, **layout: Any) -> dict[str, Any]:
    """The figure for the page, with this layout over the shared one."""
    figure.update_layout(
        template="none",
        height=HEIGHT,
        margin={"l": 56, "r": 24, "t": 8, "b": 40},
        font={"family": "Inter, system-ui, sans-serif", "size": 12},
        dragmode=False,
        xaxis={"automargin": True, "fixedrange": True},
        yaxis={"automargin": True, "fixedrange": True},
    )
    figure.update_layout(**layout)
    plain: dict[str, Any] = json.loads(figure.to_json())
    return plain


def lines_figure(lines: Sequence[DrawnLine], metric: str) -> dict[str, Any]:
    """Lines over steps. metric: the title of the y axis."""
    figure = go.Figure()
    for label, x, y, colour in lines:
        figure.add_scatter(x=list(x), y=list(y), mode="lines", name=plain_text(label, 40), meta=colour)
    return as_json(
        figure,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        showlegend=len(lines) > 1,
        legend={"orientation": "h", "y": 1, "yanchor": "bottom"},
        xaxis={"title": {"text": "step"}},
        yaxis={"title": {"text": plain_text(metric, 60)}},
    )


def plain_text(text: str, most: int = 1000) -> str:
    """At most `most` letters without HTML tags, some of which Plotly would read."""
    text = text if len(text) <= most else text[: most - 1] + "…"
    return escape(text, quote=False).replace("\n", "<br>")
