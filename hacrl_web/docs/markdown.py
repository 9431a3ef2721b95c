"""Docs, first half: Markdown of this repository as HTML, with anchors, links between pages and their passages.

The renderer is markdown-it without raw HTML: what a page holds of it stays text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """What stands under one heading, as plain text: what a search looks at."""

    heading: Heading
    text: str


@dataclass(frozen=True)
class Rendered:
    html: SafeString
    title: str
    headings: tuple[Heading, ...]
    passages: tuple[Passage, ...]
    has_formulas: bool


def slug_of(name: str) -> str:
    """Address of a file of docs: `README` is the first page."""
    return "" if name == "README" else name.lower()


def address(slug: str) -> str:
    return reverse("docs:page", args=[slug]) if slug else reverse("docs:index")


def render(text: str, settings: frozenset[str], *, defines_settings: bool = False) -> Rendered:
    """A page of docs. settings: RunSpec's names, which lead to their reference; defines_settings: this is it."""
    parser = _parser()
    tokens = parser.parse(text)
    headings = _give_anchors(tokens)
    for token in tokens:
        if token.children:
            token.children = _linked(token.children, settings, defines_settings)
    html = parser.renderer.render(tokens, parser.options, {})
    return Rendered(
        html=mark_safe(html),  # made from this repository's files, by a renderer that lets no HTML through  # noqa: S308
        title=headings[0].text,
        headings=tuple(headings),
        passages=tuple(_passages(tokens, headings)),
        has_formulas=any(token.type == "fence" and token.info == "math" for token in tokens),
    )


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    rules: dict[str, Callable[..., str]] = {
        "table_open": lambda *_: '<div class="table-scroll" tabindex="0"><table class="table">\n',
        "table_close": lambda *_: "</table></div>\n",
        "fence": _fence,
    }
    for name, rule in rules.items():
        parser.add_render_rule(name, lambda _, *arguments, rule=rule: rule(*arguments))
    return parser


def _fence(tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """Code, or a formula: its source until js/lib/docs.js draws it. Words behind the language stand above the code."""
    token = tokens[index]
    kind = "formula-source" if token.info == "math" else "code"
    words = " ".join(token.info.split()[1:])
    above = format_html('<p class="small quiet">{}</p>\n', words) if words else ""
    return above + format_html('<pre class="{}" tabindex="0">{}</pre>\n', kind, token.content.rstrip("\n"))


def _give_anchors(tokens: list[Token]) -> list[Heading]:
    """Headings in their order; each gets its text as its id, in the way of the sites that show repositories."""
    counts: Counter[str] = Counter()
    headings = []
    for token, inline in pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = _text(inline)
        plain = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        anchor = f"{plain}-{counts[plain]}" if counts[plain] else plain
        counts[plain] += 1
        token.attrSet("id", anchor)
        headings.append(Heading(int(token.tag[1]), text, anchor))
    return headings


def _linked(children: list[Token], settings: frozenset[str], defines_settings: bool) -> list[Token]:
    """Links lead to pages of docs, pictures to static files, names of settings to their line of the reference."""
    done: list[Token] = []
    is_in_link = False
    for token in children:
        if token.type == "link_open":
            is_in_link = True
            _lead(token)
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
            done += [Token("link_open", "a", 1, {"href": target}), token, Token("link_close", "a", -1)]
        else:
            done.append(token)
    return done


def _lead(token: Token) -> None:
    href = str(token.attrGet("href"))
    if local := _LOCAL.fullmatch(href):
        token.attrSet("href", address(slug_of(local[1])) + (local[2] or ""))
    elif not href.startswith("#"):
        token.attrSet("rel", "noopener noreferrer")


def _passages(tokens: list[Token], headings: list[Heading]) -> list[Passage]:
    texts: list[list[str]] = []
    previous = ""
    for token in tokens:
        if token.type == "heading_open":
            texts.append([])
        elif token.type == "inline" and texts and previous != "heading_open":
            texts[-1].append(_text(token))
        elif token.type == "fence" and texts:
            texts[-1].append(token.content)
        previous = token.type
    return [Passage(heading, " ".join(" ".join(text).split())) for heading, text in zip(headings, texts, strict=True)]


def _text(token: Token) -> str:
    """An inline token without its marks."""
    return "".join(" " if child.type == "softbreak" else child.content for child in token.children or ())
