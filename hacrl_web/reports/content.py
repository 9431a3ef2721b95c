"""A report's Markdown as parts of a page: passages of HTML, and panels where a paragraph is an address of the product.

The renderer is markdown-it without raw HTML: HTML in a text stays text. Pictures are links: a page loads nothing from
other hosts. What a text becomes is kept, because it takes time to read; what its panels show is not.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it.token import Token

from hacrl_web.accounts.models import User
from hacrl_web.docs.markdown import markdown_parser
from hacrl_web.reports.models import Report
from hacrl_web.reports.panels import MAX_PANELS, Panel, PanelPlace, has_page, has_panel, panel_of

MAX_NESTING = 20  # of quotes and lists, which the parser follows by recursion
FIRST_PANELS = 2  # drawn with the page; a browser asks for the others one by one
MAX_ADDRESSES = 200  # of a text, that are looked up
KEPT_TEXTS = 64  # of a process
# The parser's time grows with these, for some texts with their square.
LIMITS = {
    "lines": (re.compile(r"\n"), 4000),
    "square brackets": (re.compile(r"[\[\]]"), 4000),
    "cells of tables, separated by |": (re.compile(r"\|"), 8000),
}


@dataclass(frozen=True)
class ReportPart:
    """A passage of the text, a panel, or where a browser puts the panel of this number."""

    html: SafeString | None = None
    panel: Panel | None = None
    later: PanelPlace | None = None


def excess_of(text: str) -> str:
    """What a text has too much of to be parsed quickly, in a sentence; empty if nothing."""
    for what, (pattern, most) in LIMITS.items():
        if (count := len(pattern.findall(text))) > most:
            return f"A report has at most {most:,} {what}; it has {count:,}."
    return ""


def report_parts(report: Report, user: User, hosts: Collection[str], *, is_shared: bool = False) -> list[ReportPart]:
    """The report as `user` sees it now. hosts: names under which browsers reach the product, for whole addresses.

    is_shared: all panels at once, of the report's own project alone.
    """
    if excess := excess_of(report.text):  # of a text from before there were limits
        return [ReportPart(html=format_html("<p>{}</p><pre class='code' tabindex='0'>{}</pre>", excess, report.text))]
    return [
        ReportPart(html=one)
        if isinstance(one, str)
        else ReportPart(panel=panel_of(report.project_id, user, one, is_shared=is_shared))
        if is_shared or one.number <= FIRST_PANELS
        else ReportPart(later=one)
        for one in _passages(report.text, frozenset(hosts))
    ]


def panel_at(report: Report, user: User, hosts: Collection[str], number: int) -> Panel | None:
    """One panel of a report as `user` sees it now; None if the text has none of this number."""
    if excess_of(report.text):
        return None
    places = (one for one in _passages(report.text, frozenset(hosts)) if isinstance(one, PanelPlace))
    place = next((one for one in places if one.number == number), None)
    return panel_of(report.project_id, user, place) if place else None


@lru_cache(maxsize=KEPT_TEXTS)
def _passages(text: str, hosts: frozenset[str]) -> tuple[SafeString | PanelPlace, ...]:
    """The passages of a text as HTML, and where panels are."""
    parser = markdown_parser(maxNesting=MAX_NESTING).enable("strikethrough")
    passages: list[SafeString | PanelPlace] = []
    passage: list[Token] = []
    num_panels = num_addresses = 0

    def end_passage() -> None:
        if passage:
            html = parser.renderer.render(passage, parser.options, {})
            passages.append(mark_safe(html))  # noqa: S308 - the renderer escapes the text's HTML
            passage.clear()

    tokens = parser.parse(text)
    for token in tokens:
        if token.type == "inline":
            token.children = _without_pictures(token.children or [], hosts)
    place = 0
    while place < len(tokens):
        address, title = _sole_address(tokens[place : place + 3], hosts)
        num_addresses += bool(address)
        if num_addresses > MAX_ADDRESSES:
            address = ""
        if address and num_panels < MAX_PANELS and has_panel(address):
            num_panels += 1
            end_passage()
            passages.append(PanelPlace(address, title, num_panels))
            place += 3
            continue
        if address and has_page(address) and _own_path(tokens[place + 1].content.strip(), hosts):
            tokens[place + 1].children = _link(address, tokens[place + 1].content.strip())
        passage.append(tokens[place])
        place += 1
    end_passage()
    return tuple(passages)


def _sole_address(tokens: list[Token], hosts: Collection[str]) -> tuple[str, str]:
    """(address without its host, title) of a paragraph at the top that is one address or one link; else empty."""
    if [token.type for token in tokens] != ["paragraph_open", "inline", "paragraph_close"] or tokens[0].level:
        return "", ""
    if path := _own_path(tokens[1].content.strip(), hosts):
        return path, ""
    children = tokens[1].children or []
    if [child.type for child in children] != ["link_open", "text", "link_close"]:
        return "", ""
    href, text = str(children[0].attrGet("href")), children[1].content
    return _own_path(href, hosts), "" if text == href else text


def _own_path(address: str, hosts: Collection[str]) -> str:
    """Path and query of an address of the product; empty for any other text."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    is_own = parts.scheme in ("http", "https") and parts.netloc in hosts
    is_path = not parts.scheme and not parts.netloc and address.startswith("/")
    if not (is_own or is_path) or len(address.split()) != 1:
        return ""
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _link(href: str, text: str, **attributes: str | int | float) -> list[Token]:
    begin = Token("link_open", "a", 1, attrs={"href": href, **attributes})
    return [begin, Token("text", "", 0, content=text), Token("link_close", "a", -1)]


def _without_pictures(children: list[Token], hosts: Collection[str]) -> list[Token]:
    """Pictures as links, and links to other hosts without a referrer."""
    without: list[Token] = []
    for child in children:
        if child.type == "image":
            href = str(child.attrGet("src"))
            without += _link(href, child.content or href, rel="noopener noreferrer")
            continue
        if child.type == "link_open" and not _own_path(str(child.attrGet("href")), hosts):
            child.attrSet("rel", "noopener noreferrer")
        without.append(child)
    return without
