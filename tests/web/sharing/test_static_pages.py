"""HTML that only shows, and figures as SVG: places of points worked out by hand."""

from __future__ import annotations

import re

import pytest

from hacrl_web.sharing.static_page import static_html
from hacrl_web.sharing.svg import drawn


@pytest.mark.parametrize(
    ("html", "shown"),
    [
        ('<p>See <a href="/runs/1">run</a></p>', "<p>See <span>run</span></p>"),
        ('<a class="button" href="/x">Queue</a>after', "after"),
        ('<svg class="icon"><use href="#i"></use></svg>done', "done"),
        ("<form><div><p>a</p></div><button>b</button></form>c", "c"),
        ("<script>alert('<p>')</script><style>p{}</style>d", "d"),
        ('<p onclick="x()" hx-get="/x" style="x" data-url="/x" class="y">e</p>', '<p class="y">e</p>'),
        ("<p>1 &lt; 2 &amp; &quot;</p>", '<p>1 &lt; 2 &amp; "</p>'),
        ('<svg viewBox="0 0 1 1"><use href="#i"></use><polyline points="0,0"/></svg>',
         '<svg viewBox="0 0 1 1"><polyline points="0,0"></polyline></svg>'),
        ('<img src="https://a.example/x.png"><br><custom-a>f</custom-a>', "<br>f"),
        ('<select><option>a</option></select><input value="b"><!-- c -->g', "g"),
        ('<h1 title="&quot;><script>">h</h1></div>', '<h1 title="&quot;&gt;&lt;script&gt;">h</h1>'),
    ],
)  # fmt: skip
def test_only_named_elements_and_attributes_stay(html, shown):
    assert static_html(html) == shown


def test_figure_takes_its_place():
    script = '<script id="f" type="application/json">{"data": [{"x": [0, 1], "y": [0, 1]}], "layout": {}}</script>'
    page = static_html(f'<div data-figure="f"></div>{script}')
    assert page.startswith('<div><svg class="chart-picture"')
    assert "script" not in page


def circles(html: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', html)]


def test_points_and_error_bars_lie_where_the_axes_say():
    trace = {"x": [0, 10], "y": [0, 1], "mode": "markers", "error_y": {"array": [None, 0.5]}, "name": "A"}
    axes = {"xaxis": {"range": [0, 10]}, "yaxis": {"range": [0, 2]}, "height": 264}
    html = drawn({"data": [trace], "layout": axes})
    # y: from 264 - 46 = 218 up to 18, so 1 of 2 is at 118, with half of it 68 and 168. x: to 480 - 14.
    (left, floor), (right, middle) = circles(html)
    assert (floor, right, middle) == (218.0, 466.0, 118.0)
    assert f'<line class="chart-bar" x1="{right}" y1="168.0" x2="{right}" y2="68.0">' in html
    assert left < 60
    assert "<title>A 10, 1</title>" in html


def test_logarithmic_and_named_axes():
    logarithmic = {"data": [{"x": [1e-4, 1e-3, 1e-2], "y": [1, 1, 1], "mode": "markers"}]}
    at = [x for x, _ in circles(drawn(logarithmic | {"layout": {"xaxis": {"type": "log"}}}))]
    assert at[1] == pytest.approx((at[0] + at[2]) / 2, abs=0.1)
    named = drawn({"data": [{"x": ["a", "<b>", "a"], "y": [1, 2, 3], "mode": "markers"}], "layout": {}})
    first, second, third = circles(named)
    assert first[0] == third[0] < second[0]
    assert "&lt;b&gt;" in named
    assert "<b>" not in named


def test_figures_of_other_kinds_and_without_points_are_left_out():
    assert drawn({"data": [{"type": "heatmap", "z": [[1]]}], "layout": {}}) == ""
    assert drawn({"data": [{"x": [None], "y": [1]}], "layout": {}}) == ""
    assert drawn({"data": [], "layout": {}}) == ""
    assert "<polyline" in drawn({"data": [{"x": [3], "y": [0.5]}], "layout": {}})  # one point, no span
