"""HTML of the product's own templates -> what of it only shows: no links, forms, buttons, scripts; figures as SVG.

Elements and attributes are named that stay, so that whatever a template gains is left out of links until it is named.
"""

from __future__ import annotations

import json
from html import escape
from html.parser import HTMLParser
from typing import Any

from django.utils.safestring import SafeString, mark_safe

from hacrl_web.sharing.svg import drawn

STAY = """
    p h1 h2 h3 h4 h5 h6 div span section article header strong em b i s code pre blockquote ul ol li dl dt dd br hr sup
    sub table caption thead tbody tfoot tr th td figure figcaption details summary progress svg polyline
"""
LEFT_OUT = frozenset(("button", "row-end", "icon"))  # classes of links that act or lead on, and of the sprite's icons
EMPTY = "br hr col input img link meta use source wbr"
DROPPED = "script style form button select textarea dialog template iframe object"  # with their content
ATTRIBUTES = """
    class id title role hidden lang colspan rowspan scope start max value open points viewbox width height tabindex
    data-label data-agent data-run-colour data-state data-algorithm aria-hidden aria-label aria-labelledby
"""
STAYING, EMPTY_TAGS, DROPPED_TAGS, KEPT = (frozenset(one.split()) for one in (STAY, EMPTY, DROPPED, ATTRIBUTES))


def static_html(html: str) -> SafeString:
    """html: of our templates, which escape. It may hold figures as the pages do: data-figure and a JSON script."""
    figures = _Figures()
    figures.feed(html)
    page = _Static(figures.by_id)
    page.feed(html)
    page.close()
    return mark_safe("".join(page.pieces))  # noqa: S308 - built from escaped text and named elements


class _Figures(HTMLParser):
    """The JSON scripts of a page by their id."""

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[str, Any] = {}
        self.current = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.current = given.get("id") or "" if tag == "script" and given.get("type") == "application/json" else ""

    def handle_data(self, data: str) -> None:
        if self.current:
            self.by_id[self.current] = json.loads(data)
            self.current = ""


class _Static(HTMLParser):
    """Writes what stays to `pieces`."""

    def __init__(self, figures: dict[str, Any]) -> None:
        super().__init__()
        self.figures, self.pieces = figures, list[str]()
        self.open: list[tuple[str, str]] = []  # elements of the page, and what each became: empty if nothing
        self.num_dropped = 0  # open elements that are left out with their content

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        is_dropped = tag in DROPPED_TAGS or (tag in ("a", "svg") and not LEFT_OUT.isdisjoint(classes))
        if tag in EMPTY_TAGS:
            if tag in STAYING and not self.num_dropped:
                self.pieces.append(f"<{tag}>")
            return
        becomes = "" if is_dropped or self.num_dropped else tag if tag in STAYING else "span" if tag == "a" else ""
        self.open.append((tag, "/dropped" if is_dropped else becomes))
        self.num_dropped += is_dropped
        if becomes:
            self.pieces.append(f"<{becomes}{_written(given)}>")
            if (figure := self.figures.get(given.get("data-figure") or "")) is not None:
                self.pieces.append(drawn(figure))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY_TAGS:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in EMPTY_TAGS or tag not in [name for name, _ in self.open]:
            return
        while True:
            name, became = self.open.pop()
            if became == "/dropped":
                self.num_dropped -= 1
            elif became:
                self.pieces.append(f"</{became}>")
            if name == tag:
                return

    def handle_data(self, data: str) -> None:
        if not self.num_dropped:
            self.pieces.append(escape(data, quote=False))


def _written(given: dict[str, str | None]) -> str:
    kept = ((name, value or "") for name, value in given.items() if name in KEPT)
    return "".join(f' {"viewBox" if name == "viewbox" else name}="{escape(value)}"' for name, value in kept)
