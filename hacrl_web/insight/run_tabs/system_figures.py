"""The System tab's pictures, built in Python as Plotly figures and drawn by js/lib/figures.js."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from hacrl_web.insight.plotly_figures import as_json
from hacrl_web.insight.run_tabs.system import PHASES, Bucket

# Okabe and Ito's colours in mid-tones that stand on light and dark grounds alike.
COLOURS = ("#2f8fc9", "#009e73", "#c07f00", "#bb6293", "#d55e00", "#a39800", "#8b8e93")
GREY = "#8b8e93"
GIB = 2**30
FEW_STEPS = 8  # of which the axis would else name halves


def figures(buckets: Sequence[Bucket], breaks: Sequence[int]) -> dict[str, Any]:
    """Seconds a step by phase, rates, and memory where it was recorded. breaks: steps before which the run stood."""
    middles = [(one.first + one.last) / 2 for one in buckets]
    is_short = bool(buckets) and buckets[-1].last - buckets[0].first < FEW_STEPS
    by_name = {
        "phases": _plain(_phases(buckets, middles), "seconds a step", breaks, is_short),
        "rates": _plain(_rates(buckets, middles), "tokens/s", breaks, is_short),
    }
    memory = _memory(buckets, middles)
    if memory.data:
        by_name["memory"] = _plain(memory, "GiB", breaks, is_short)
    return by_name


def _phases(buckets: Sequence[Bucket], middles: list[float]) -> go.Figure:
    figure = go.Figure()
    for place, name in enumerate(PHASES):
        spent = [one.phases[place] for one in buckets]
        if any(spent):
            figure.add_bar(
                x=middles,
                y=spent,
                name=name,
                customdata=[one.label for one in buckets],
                marker={"color": COLOURS[place], "line": {"width": 0}},
                width=[one.steps for one in buckets],
                hovertemplate=f"{name}: %{{y:.3g}} s, step %{{customdata}}<extra></extra>",
            )
    return figure.update_layout(barmode="stack", bargap=0, hovermode="closest")


def _rates(buckets: Sequence[Bucket], middles: list[float]) -> go.Figure:
    figure = go.Figure()
    figure.add_scatter(
        x=middles,
        y=[one.tokens_per_s for one in buckets],
        name="tokens/s (left)",
        mode="lines",
        line={"color": COLOURS[0]},
    )
    figure.add_scatter(
        x=middles,
        y=[one.rollouts_per_s for one in buckets],
        name="rollouts/s (right)",
        yaxis="y2",
        mode="lines",
        line={"color": COLOURS[2], "dash": "dot"},
    )
    right = {"title": {"text": "rollouts/s"}, "overlaying": "y", "side": "right", "rangemode": "tozero"}
    # Ticks of its own: those in step with the left axis are odd numbers.
    own = {"showgrid": False, "automargin": True, "fixedrange": True, "tickmode": "auto"}
    return figure.update_layout(hovermode="x", yaxis2=right | own)


def _memory(buckets: Sequence[Bucket], middles: list[float]) -> go.Figure:
    figure = go.Figure(layout={"hovermode": "x"})
    for name, values, colour, dash in (
        ("process, in RAM", [one.resident_bytes for one in buckets], COLOURS[0], "solid"),
        ("GPU tensors, peak", [one.device_peak_bytes for one in buckets], COLOURS[4], "dot"),
    ):
        if any(value is not None for value in values):
            gib = [None if value is None else value / GIB for value in values]
            figure.add_scatter(x=middles, y=gib, name=name, mode="lines", line={"color": colour, "dash": dash})
    return figure


def _plain(figure: go.Figure, title: str, breaks: Sequence[int], is_short: bool) -> dict[str, Any]:
    """The figure as JSON, with a dashed line at each break."""
    for step in breaks:
        figure.add_vline(x=step - 0.5, line={"color": GREY, "width": 1.5, "dash": "dash"})
    return as_json(
        figure,
        margin={"l": 56, "r": 24, "t": 8, "b": 40},
        showlegend=True,
        legend={
            "orientation": "h",
            "y": -0.3,
            "yanchor": "top",
            "traceorder": "normal",
            "itemclick": False,
            "itemdoubleclick": False,
        },
        xaxis={"title": {"text": "step", "standoff": 4}} | ({"dtick": 1} if is_short else {}),
        yaxis={"title": {"text": title}, "rangemode": "tozero"},
    )
