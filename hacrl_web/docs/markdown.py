"""Renders the Markdown of docs/ as HTML, with anchors at headings, links between pages, and passages for the search.

The renderer is markdown-it without raw HTML: HTML in a page stays text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

_LOCAL = re.compile(r"([\w-]+)\.md(#.*)?")


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Passage:
    """A heading and the plain text below it, which the search reads."""

    heading: Heading
    text: str


@dataclass(frozen=True)
class Rendered:
    html: SafeString
    passages: tuple[Passage, ...]
    has_formulas: bool

    @property
    def headings(self) -> list[Heading]:
        return [passage.heading for passage in self.passages]

    @property
    def title(self) -> str:
        return self.passages[0].heading.text


def slug_of(name: str) -> str:
    """The address part of a file of docs; empty for `README`, the first page."""
    return "" if name == "README" else name.lower()


def address(slug: str) -> str:
    return reverse("docs:page", args=[slug]) if slug else reverse("docs:index")


def markdown_parser(**options: Any) -> MarkdownIt:
    """A parser whose HTML stays text and whose tables scroll. options: further ones of markdown-it."""
    parser = MarkdownIt("commonmark", {"html": False, **options}).enable("table")
    parser.add_render_rule("table_open", lambda *_: '<div class="table-scroll" tabindex="0"><table class="table">\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def render(text: str, settings: frozenset[str], *, defines_settings: bool = False) -> Rendered:
    """A page of docs. settings: RunSpec's names, which link to their reference; defines_settings: this is that page."""
    parser = markdown_parser()
    parser.add_render_rule("fence", _fence)
    tokens = parser.parse(text)
    passages = _passages(tokens)
    for token in tokens:
        if token.children:
            token.children = _linked(token.children, settings, defines_settings)
    html = parser.renderer.render(tokens, parser.options, {})
    has_formulas = any(token.type == "fence" and token.info == "math" for token in tokens)
    # The text is this repository's, and the renderer escapes its HTML.
    return Rendered(mark_safe(html), tuple(passages), has_formulas)  # noqa: S308


def _fence(_: object, tokens: Sequence[Token], index: int, *options: Any) -> str:
    """Code, or the source of a formula until js/lib/docs.js draws it. Words after the language go above the code."""
    token = tokens[index]
    kind = "formula-source" if token.info == "math" else "code"
    words = " ".join(token.info.split()[1:])
    above = format_html('<p class="small quiet">{}</p>\n', words) if words else ""
    return above + format_html('<pre class="{}" tabindex="0">{}</pre>\n', kind, token.content.rstrip("\n"))


def _passages(tokens: list[Token]) -> list[Passage]:
    """The passages in their order. Each heading gets an id made from its text, as on sites that show repositories."""
    counts: Counter[str] = Counter()
    passages: list[Passage] = []
    for previous, token in pairwise(tokens):
        text = _text(token) if token.type == "inline" else token.content
        if previous.type == "heading_open":
            plain = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            anchor = f"{plain}-{counts[plain]}" if counts[plain] else plain
            counts[plain] += 1
            previous.attrSet("id", anchor)
            passages.append(Passage(Heading(int(previous.tag[1]), text, anchor), ""))
        elif passages and token.type in ("inline", "fence"):
            last = passages[-1]
            apart = ["·"] if previous.type in ("td_open", "th_open") and last.text else []
            passages[-1] = replace(last, text=" ".join([*last.text.split(), *apart, *text.split()]))
    return passages


def _linked(children: list[Token], settings: frozenset[str], defines_settings: bool) -> list[Token]:
    """Link pages of docs to each other, pictures to static files, and names of settings to their reference."""
    result: list[Token] = []
    is_in_link = False
    for token in children:
        if token.type == "link_open":
            is_in_link = True
            _set_target(token)
        elif token.type == "link_close":
            is_in_link = False
        elif token.type == "image":
            token.attrSet("src", static("docs/" + str(token.attrGet("src")).removeprefix("pictures/")))
            token.attrSet("loading", "lazy")
        is_setting = token.type == "code_inline" and token.content in settings
        if is_setting and defines_settings:
            token.attrSet("id", token.content)
        if is_setting and not defines_settings and not is_in_link:
            target = f"{address('settings')}#{token.content}"
            result += [Token("link_open", "a", 1, {"href": target}), token, Token("link_close", "a", -1)]
        else:
            result.append(token)
    return result


def _set_target(token: Token) -> None:
    href = str(token.attrGet("href"))
    if local := _LOCAL.fullmatch(href):
        token.attrSet("href", address(slug_of(local[1])) + (local[2] or ""))
    elif not href.startswith("#"):
        token.attrSet("rel", "noopener noreferrer")


def _text(token: Token) -> str:
    """The plain text of an inline token."""
    return "".join(" " if child.type == "softbreak" else child.content for child in token.children or ())
