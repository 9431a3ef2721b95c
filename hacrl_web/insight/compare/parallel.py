"""Parallel coordinates: one upright axis for each setting that differs between runs, the last for the result.

Drawn as lines over a category axis, each axis scaled to its own values: the bundle of the other pictures can do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from hacrl_web.insight.plotly_figures import as_json
from hacrl_web.insight.settings_diff import ABSENT, SettingLine

MAX_AXES = 10
MAX_LETTERS = 24
HEIGHT = 340


def is_drawable(line: SettingLine) -> bool:
    """A number, a switch or a short word in every run; names say nothing."""
    if line.path == "name" or not line.differs:
        return False
    return all(
        value is None
        or value is ABSENT
        or isinstance(value, int | float)
        or (isinstance(value, str) and len(value) <= 40)
        for value in line.values
    )


def axes(lines: Sequence[SettingLine]) -> list[SettingLine]:
    """The settings to draw, numbers first."""
    fit = [line for line in lines if is_drawable(line)]
    return sorted(fit, key=lambda line: not _is_numeric(line.values))[:MAX_AXES]


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def scaled(values: Sequence[Any]) -> tuple[list[float | None], list[tuple[float, str]]]:
    """Each value's height from 0 to 1, and the marks (height, text) of the axis. Words stand in alphabetical order."""
    if _is_numeric([value for value in values if value is not None]):
        numbers = [None if value is None else float(value) for value in values]
        present = [number for number in numbers if number is not None]
        if not present:
            return [None] * len(values), []
        low, high = min(present), max(present)
        span = high - low
        heights = [None if n is None else (n - low) / span if span else 0.5 for n in numbers]
        marks = [(0.0, _number(low)), (1.0, _number(high))] if span else [(0.5, _number(low))]
        return heights, marks
    words = [_word(value) for value in values]
    order = sorted(set(words))
    height = {word: place / (len(order) - 1) if len(order) > 1 else 0.5 for place, word in enumerate(order)}
    return [height[word] for word in words], [(height[word], word[:MAX_LETTERS]) for word in order]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def figure(
    names: Sequence[str],
    colours: Sequence[int],
    lines: Sequence[SettingLine],
    result: Sequence[float | None],
    metric: str,
) -> dict[str, Any]:
    """names, colours: of the runs, a colour from 0 to 7.  result: each run's last value of the metric."""
    titles = [line.path for line in lines] + [f"{metric}, last"]
    columns = [line.values for line in lines] + [tuple(result)]
    placed = [scaled(values) for values in columns]
    picture = go.Figure()
    for place, name in enumerate(names):
        texts = [f"{title}: {_word(values[place])}" for title, values in zip(titles, columns, strict=True)]
        picture.add_scatter(
            x=list(range(len(titles))),
            y=[heights[place] for heights, _ in placed],
            name=_plain_text(name if len(name) <= 40 else name[:39] + "…"),
            text=[_plain_text(text) for text in texts],
            mode="lines+markers",
            line={"width": 2},
            marker={"size": 7, "symbol": colours[place]},
            meta={"place": colours[place]},  # its colour is put in by figures.js
            hovertemplate="%{text}<extra>%{fullData.name}</extra>",
        )
    for at, (_, marks) in enumerate(placed):
        is_last = at == len(placed) - 1
        beside: dict[str, Any] = {"xanchor": "right", "xshift": -6} if is_last else {"xanchor": "left", "xshift": 6}
        picture.add_vline(x=at, line={"color": "#8b8e93", "width": 1})
        for height, text in marks:
            picture.add_annotation(
                x=at, y=height, text=_plain_text(text), showarrow=False, yshift=9, font={"size": 11}, **beside
            )
    ticks = [_plain_text(_wrapped(title)) for title in titles]
    return as_json(
        picture,
        height=HEIGHT,
        margin={"l": 32, "r": 32, "t": 24, "b": 64},
        hovermode="closest",
        showlegend=False,
        xaxis={"tickvals": list(range(len(titles))), "ticktext": ticks, "showgrid": False, "zeroline": False,
               "range": [-0.25, len(titles) - 0.75]},
        yaxis={"visible": False, "range": [-0.08, 1.12]},
    )  # fmt: skip


def _wrapped(title: str) -> str:
    head, point, tail = title.rpartition(".")
    return f"{head}{point}\n{tail}" if head else title


def _plain_text(text: str) -> str:
    """Text for Plotly, which reads a little markup: nothing of it is taken for a tag."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", "<br>")
