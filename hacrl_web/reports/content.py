"""A report's Markdown as parts of a page: passages of HTML, and panels where a paragraph is an address of the product.

The renderer is markdown-it without raw HTML: HTML in a text stays text. Pictures are links: a page loads nothing from
other hosts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.utils.safestring import SafeString, mark_safe
from markdown_it.token import Token

from hacrl_web.docs.markdown import markdown_parser
from hacrl_web.reports.models import Report
from hacrl_web.reports.panels import MAX_PANELS, Panel, panel_of

MAX_NESTING = 20  # of quotes and lists, which the parser follows by recursion


@dataclass(frozen=True)
class ReportPart:
    """A passage of the text, or a panel."""

    html: SafeString | None = None
    panel: Panel | None = None


def report_parts(report: Report, user: Any, hosts: Collection[str]) -> list[ReportPart]:
    """The report as `user` sees it now. hosts: names under which browsers reach the product, for whole addresses."""
    parser = markdown_parser(maxNesting=MAX_NESTING).enable("strikethrough")
    parts: list[ReportPart] = []
    passage: list[Token] = []
    num_panels = 0

    def end_passage() -> None:
        if passage:
            html = parser.renderer.render(passage, parser.options, {})
            parts.append(ReportPart(html=mark_safe(html)))  # noqa: S308 - the renderer escapes the text's HTML
            passage.clear()

    tokens = parser.parse(report.text)
    for token in tokens:
        if token.type == "inline":
            token.children = _without_pictures(token.children or [], hosts)
    place = 0
    while place < len(tokens):
        address, title = _sole_address(tokens[place : place + 3], hosts)
        panel = None
        if address and num_panels < MAX_PANELS:
            panel = panel_of(report, user, address, title, f"panel-{num_panels + 1}")
        if panel is None:
            passage.append(tokens[place])
            place += 1
            continue
        num_panels += 1
        end_passage()
        parts.append(ReportPart(panel=panel))
        place += 3
    end_passage()
    return parts


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


def _without_pictures(children: list[Token], hosts: Collection[str]) -> list[Token]:
    """Pictures as links, and links to other hosts without a referrer."""
    without: list[Token] = []
    for child in children:
        if child.type == "image":
            href = str(child.attrGet("src"))
            begin = Token("link_open", "a", 1, attrs={"href": href, "rel": "noopener noreferrer"})
            without += [begin, Token("text", "", 0, content=child.content or href), Token("link_close", "a", -1)]
            continue
        if child.type == "link_open" and not _own_path(str(child.attrGet("href")), hosts):
            child.attrSet("rel", "noopener noreferrer")
        without.append(child)
    return without
