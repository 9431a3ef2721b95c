"""A Plotly figure of lines and marks as SVG, which needs no script: in pages without a session, and in files.

It draws what our figures use of Plotly: scatter traces with lines, marks, labels and error bars; linear, logarithmic
and named axes; straight lines across. Colours are those of the style sheet, so they follow the reader's scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape, unescape
from typing import Any

WIDTH, LETTER, TOP, BOTTOM, RIGHT = 480, 6.6, 18, 46, 14
MOST_LEFT = 190  # pixels of names beside the axis
NUM_TICKS = 5
AGENTS, RUNS = 8, 6  # colours of the style sheet
PLAIN = "var(--accent)"


class _Axis:
    """Where values lie between two ends in pixels, and the marks of the axis."""

    def __init__(self, layout: dict[str, Any], values: Sequence[Any]) -> None:
        self.title = _plain((layout.get("title") or {}).get("text") or "")
        self.names = list(dict.fromkeys(map(str, values))) if any(isinstance(one, str) for one in values) else []
        self.is_log = layout.get("type") == "log" and not self.names
        numbers = [number for one in values if (number := self.number(one)) is not None]
        low, high = min(numbers, default=0.0), max(numbers, default=1.0)
        if layout.get("rangemode") == "tozero" and not self.is_log:
            low, high = min(low, 0.0), max(high, 0.0)
        room = 0.5 if self.names else 0.05 * (high - low) or 0.5
        start = low if low == 0 and not self.names else low - room
        given: list[float] | None = None if self.is_log else layout.get("range")
        self.low, self.high = given or [start, high + room]
        self.ends = (0.0, 1.0)
        if layout.get("tickvals") is not None:
            self.ticks = list(zip(layout["tickvals"], map(_plain, layout["ticktext"]), strict=True))
        elif self.names:
            self.ticks = [(float(place), name) for place, name in enumerate(self.names)]
        else:
            self.ticks = self._round_ticks()

    def number(self, value: Any) -> float | None:
        if self.names:
            return float(self.names.index(str(value)))
        if value is None or (self.is_log and value <= 0):
            return None
        return math.log10(value) if self.is_log else float(value)

    def _round_ticks(self) -> list[tuple[float, str]]:
        step = (self.high - self.low) / NUM_TICKS
        size = 10.0 ** math.floor(math.log10(step))
        step = next(size * one for one in (1, 2, 5, 10) if size * one >= step)
        ticks = [n * step for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [(one, _short(10**one if self.is_log else round(one, 12))) for one in ticks]

    def at(self, number: float) -> float:
        start, end = self.ends
        return round(start + (number - self.low) / (self.high - self.low) * (end - start), 1)

    def place(self, value: Any) -> float | None:
        number = self.number(value)
        return None if number is None else self.at(number)


def drawn(figure: dict[str, Any]) -> str:
    """The picture with its legend, as HTML. Empty for a figure of another kind, or without a point."""
    layout, traces = figure["layout"], figure["data"]
    if any(trace.get("type", "scatter") != "scatter" for trace in traces) or not any(_points(one) for one in traces):
        return ""
    axes = {}
    for name in ("x", "y"):
        axes[name] = _Axis(layout.get(f"{name}axis") or {}, [one for trace in traces for one in _reach(trace, name)])
    x, y, height = axes["x"], axes["y"], layout.get("height") or 320
    left = 24 + min(MOST_LEFT, LETTER * max((len(text) for _, text in y.ticks), default=1))
    x.ends, y.ends = (left, WIDTH - RIGHT), (height - BOTTOM, TOP)
    pieces = [*_frame(x, y, height), *_lines_across(layout, x, y)]
    for place, trace in enumerate(traces):
        pieces += _trace(trace, x, y, place)
    named = [(_colour(trace, place), _plain(trace["name"])) for place, trace in enumerate(traces) if trace.get("name")]
    keys = "".join(f'<li><i style="background: {colour}"></i>{escape(name)}</li>' for colour, name in named)
    legend = f'<ul class="chart-keys">{keys}</ul>' if layout.get("showlegend") and len(named) > 1 else ""
    return (
        f'<svg class="chart-picture" viewBox="0 0 {WIDTH} {height}" aria-hidden="true">{"".join(pieces)}</svg>{legend}'
    )


def _points(trace: dict[str, Any]) -> list[tuple[int, Any, Any]]:
    """(number, x, y) of the points that have both."""
    pairs = zip(trace.get("x") or (), trace.get("y") or (), strict=False)
    return [(n, x, y) for n, (x, y) in enumerate(pairs) if x is not None and y is not None]


def _reach(trace: dict[str, Any], name: str) -> list[Any]:
    """The values on an axis, with the ends of error bars."""
    place = "xy".index(name) + 1
    points = _points(trace)
    halves = (trace.get(f"error_{name}") or {}).get("array") or []
    ends = [one[place] + side * halves[one[0]] for one in points for side in (-1, 1) if halves and halves[one[0]]]
    return [one[place] for one in points] + ends


def _frame(x: _Axis, y: _Axis, height: float) -> list[str]:
    """Grid, labels of ticks, and titles."""
    (left, right), (floor, top) = x.ends, y.ends
    pieces = []
    for number, text in y.ticks:
        pieces.append(_line(left, y.at(number), right, y.at(number), "grid"))
        pieces.append(_text(left - 6, y.at(number) + 4, _cut(text), "end"))
    for number, text in x.ticks:
        pieces.append(_text(x.at(number), floor + 16, _cut(text), "middle"))
    pieces.append(_line(left, floor, right, floor, "axis"))
    pieces.append(_text((left + right) / 2, height - 8, x.title, "middle"))
    turned = f' transform="rotate(-90 12 {(floor + top) / 2})"'
    return [*pieces, _text(12, (floor + top) / 2, y.title, "middle", turned)]


def _lines_across(layout: dict[str, Any], x: _Axis, y: _Axis) -> list[str]:
    """Plotly's vlines and hlines."""
    pieces = []
    for shape in layout.get("shapes") or ():
        if shape["x0"] == shape["x1"]:
            pieces.append(_line(x.at(shape["x0"]), y.ends[0], x.at(shape["x0"]), y.ends[1], "across"))
        else:
            pieces.append(_line(x.ends[0], y.at(shape["y0"]), x.ends[1], y.at(shape["y0"]), "across"))
    return pieces


def _trace(trace: dict[str, Any], x: _Axis, y: _Axis, number: int) -> list[str]:
    places = [(n, x.place(a), y.place(b), a, b) for n, a, b in _points(trace)]
    mode, pieces = trace.get("mode") or "lines", []
    seen = [(n, at, up, a, b) for n, at, up, a, b in places if at is not None and up is not None]
    if "lines" in mode:
        steps = (trace.get("line") or {}).get("shape") == "hv"
        corners = [
            corner
            for place, (_, at, up, *_) in enumerate(seen)
            for corner in ([(at, seen[place - 1][2])] if steps and place else []) + [(at, up)]
        ]
        points = " ".join(f"{at},{up}" for at, up in corners)
        pieces.append(f'<polyline points="{points}" fill="none" style="stroke: {_colour(trace, number)}"></polyline>')
    for name, axis in (("x", x), ("y", y)):
        halves = (trace.get(f"error_{name}") or {}).get("array") or []
        for n, at, up, a, b in seen if halves else ():
            if halves[n]:
                ends = [axis.at((a if name == "x" else b) + side * halves[n]) for side in (-1, 1)]
                line = (ends[0], up, ends[1], up) if name == "x" else (at, ends[0], at, ends[1])
                pieces.append(_line(*line, "bar"))
    texts = trace.get("text") or []
    for n, at, up, a, b in seen if "markers" in mode else ():
        pieces.append(_mark(trace, n, at, up, _colour(trace, number, n), f"{_plain(trace.get('name') or '')} {a}, {b}"))
    for n, at, up, *_ in seen if "text" in mode else ():
        pieces.append(_text(at, up - 10, _plain(texts[n]), "middle"))
    return pieces


def _mark(trace: dict[str, Any], n: int, at: float, up: float, colour: str, title: str) -> str:
    marker = trace.get("marker") or {}
    symbol = str(_of(marker.get("symbol"), n) or "circle")
    if symbol == "line-ew":
        return _line(at - 12, up, at + 12, up, "start")
    radius = (marker.get("size") or 6) / 2
    fill = "var(--surface)" if "open" in symbol else colour
    style = f"fill: {fill}; stroke: {colour}"
    if symbol.startswith("diamond"):
        corner = f"{radius} {radius}l-{radius} {radius}l-{radius} -{radius}"
        return f'<path d="M{at} {up - radius}l{corner}z" style="{style}"><title>{escape(title)}</title></path>'
    return f'<circle cx="{at}" cy="{up}" r="{radius}" style="{style}"><title>{escape(title)}</title></circle>'


def _colour(trace: dict[str, Any], number: int, n: int = 0) -> str:
    """The colour of an agent or a run, else the figure's own, else one of the sheet's by the trace's number."""
    meta = trace.get("meta") or {}
    if "place" in meta:
        return f"var(--agent-{meta['place'] % AGENTS})"
    if "run" in meta:
        return f"var(--run-{meta['run'] % RUNS})"
    own = (trace.get("line") or {}).get("color") or _of((trace.get("marker") or {}).get("color"), n)
    return escape(str(own)) if own else PLAIN if not number else f"var(--agent-{number % AGENTS})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _of(value: Any, n: int) -> Any:
    return value[n] if isinstance(value, list) else value


def _plain(text: Any) -> str:
    """What Plotly would show of its own marked-up text."""
    return unescape(str(text).replace("<br>", " "))


def _cut(text: str) -> str:
    most = int(MOST_LEFT / LETTER)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _line(x0: float, y0: float, x1: float, y1: float, kind: str) -> str:
    return f'<line class="chart-{kind}" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"></line>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{more}>{escape(text)}</text>' if text else ""
