"""Small SVG pictures for a file that stands alone: dots with intervals, and dots over a cost. No script, no library.

Lines and letters take `currentColor`, so that the file's own style fits them to light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from hacrl_web.runs.templatetags.show import plain_significant

WIDTH = 800
LEFT, RIGHT, TOP, ROW = 276, 24, 16, 28
LABEL_LETTERS = 40


@dataclass(frozen=True)
class Dot:
    """A row of a picture: its mean with half the width of its interval, its seeds, and where it began."""

    label: str
    mean: float
    half_width: float | None
    seeds: Sequence[float]
    start: float | None = None


@dataclass(frozen=True)
class Scale:
    """Numbers from low to high as places from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> str:
        share = (value - self.low) / (self.high - self.low)
        return f"{self.begin + share * (self.end - self.begin):.1f}"

    def ticks(self) -> list[float]:
        """Round numbers, about five."""
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (step * factor) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def scale_of(values: Sequence[float], begin: float, end: float) -> Scale:
    """From zero, or below where a value is, to a little above the highest."""
    low, high = min([0.0, *values]), max([0.0, *values])
    spare = (high - low) * 0.05 or 1.0
    return Scale(low - (spare if low < 0 else 0.0), high + spare, begin, end)


def _cut(text: str) -> str:
    return text if len(text) <= LABEL_LETTERS else text[: LABEL_LETTERS - 1] + "…"


def _svg(height: float, title: str, body: SafeString) -> SafeString:
    return format_html(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" font-size="12" fill="currentColor">{}</svg>',
        WIDTH, f"{height:.0f}", title, body,
    )  # fmt: skip


def _line(x1: str, y1: str, x2: str, y2: str, *, width: float = 1, opacity: float = 1) -> SafeString:
    return format_html(
        '<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="currentColor" stroke-width="{}" opacity="{}"/>',
        x1, y1, x2, y2, width, opacity,
    )  # fmt: skip


def _text(x: str, y: str, text: str, anchor: str = "start") -> SafeString:
    return format_html('<text x="{}" y="{}" text-anchor="{}">{}</text>', x, y, anchor, text)


def _circle(x: str, y: str, radius: float, *, is_filled: bool, title: str) -> SafeString:
    return format_html(
        '<circle cx="{}" cy="{}" r="{}" stroke="currentColor" fill="{}"><title>{}</title></circle>',
        x, y, radius, "currentColor" if is_filled else "none", title,
    )  # fmt: skip


def _joined(parts: Sequence[SafeString]) -> SafeString:
    return format_html_join("", "{}", ((part,) for part in parts))


def _x_axis(scale: Scale, bottom: float, title: str) -> list[SafeString]:
    parts = [_line(scale(tick), str(TOP), scale(tick), f"{bottom:.1f}", opacity=0.2) for tick in scale.ticks()]
    parts += [_text(scale(tick), f"{bottom + 16:.1f}", f"{tick:g}", "middle") for tick in scale.ticks()]
    return [*parts, _text(f"{(LEFT + WIDTH - RIGHT) / 2:.1f}", f"{bottom + 34:.1f}", title, "middle")]


def seeds(dots: Sequence[Dot], title: str) -> SafeString:
    """A line for each row: circles for seeds, a filled one for the mean with its interval, an upright for the start."""
    ends = [dot.mean + sign * (dot.half_width or 0.0) for dot in dots for sign in (-1, 1)]
    starts = [dot.start for dot in dots if dot.start is not None]
    scale = scale_of([*ends, *starts, *(value for dot in dots for value in dot.seeds)], LEFT, WIDTH - RIGHT)
    bottom = TOP + ROW * len(dots)
    parts = _x_axis(scale, bottom, title)
    for place, dot in enumerate(dots):
        y = TOP + ROW * (place + 0.5)
        at = f"{y:.1f}"
        parts.append(_text(f"{LEFT - 12}", f"{y + 4:.1f}", _cut(dot.label), "end"))
        if dot.start is not None:
            x = scale(dot.start)
            parts.append(_line(x, f"{y - 8:.1f}", x, f"{y + 8:.1f}", width=2, opacity=0.5))
        if dot.half_width:
            low, high = scale(dot.mean - dot.half_width), scale(dot.mean + dot.half_width)
            parts.append(_line(low, at, high, at, width=1.5))
        for value in dot.seeds:
            parts.append(_circle(scale(value), at, 3, is_filled=False, title=f"one seed: {plain_significant(value)}"))
        title_of_mean = f"{dot.label}: {plain_significant(dot.mean)}"
        parts.append(_circle(scale(dot.mean), at, 5, is_filled=True, title=title_of_mean))
    return _svg(bottom + 42, title, _joined(parts))


def costs(points: Sequence[tuple[Dot, float]], title: str, cost_title: str) -> SafeString:
    """Score (upright) over cost; each mark has its number, and the names stand below."""
    plot = 220.0
    across = scale_of([cost for _, cost in points], 64, WIDTH - RIGHT)
    ends = [dot.mean + sign * (dot.half_width or 0.0) for dot, _ in points for sign in (-1, 1)]
    up = scale_of(ends, TOP + plot, TOP)
    parts = _x_axis(across, TOP + plot, cost_title)
    for tick in up.ticks():
        parts.append(_line("64", up(tick), f"{WIDTH - RIGHT}", up(tick), opacity=0.2))
        parts.append(_text("56", up(tick), f"{tick:g}", "end"))
    for number, (dot, cost) in enumerate(points, 1):
        if dot.half_width:
            low, high = up(dot.mean - dot.half_width), up(dot.mean + dot.half_width)
            parts.append(_line(across(cost), low, across(cost), high, width=1.5))
        parts.append(_circle(across(cost), up(dot.mean), 5, is_filled=True, title=dot.label))
        parts.append(_text(f"{float(across(cost)) + 9:.1f}", f"{float(up(dot.mean)) - 6:.1f}", str(number)))
        parts.append(_text("64", f"{TOP + plot + 40 + 18 * number:.1f}", f"{number}  {dot.label[:90]}"))
    return _svg(TOP + plot + 56 + 18 * len(points), title, _joined(parts))
