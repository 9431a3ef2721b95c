"""What all Plotly pictures share: their layout, and their way to the page as JSON, where js/lib/figures.js draws them.

Text and grid colours are set by the page, for light and dark grounds.
"""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go

HEIGHT = 320


def as_json(figure: go.Figure, **layout: Any) -> dict[str, Any]:
    """The figure for the page, with this layout over the shared one."""
    figure.update_layout(
        template="none",
        height=HEIGHT,
        font={"family": "system-ui, sans-serif", "size": 12},
        dragmode=False,
        xaxis={"automargin": True, "fixedrange": True},
        yaxis={"automargin": True, "fixedrange": True},
    )
    figure.update_layout(**layout)
    plain: dict[str, Any] = json.loads(figure.to_json())
    return plain
