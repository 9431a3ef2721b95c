"""Docs, second half: which pages there are, in which order, and where a word stands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from hacrl_web.docs import reference
from hacrl_web.docs.markdown import Passage, Rendered, render, slug_of

FOLDER = settings.BASE_DIR / "docs"
SETTINGS = "settings"  # the page that reference.py writes
MAX_FOUND = 60
AROUND = 90  # characters shown on either side of what was found
_ENTRY = re.compile(r"- \[([^\]]+)\]\(([\w-]+)\.md\)")


@dataclass(frozen=True)
class Entry:
    slug: str
    title: str


@dataclass(frozen=True)
class PageGroup:
    title: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Found:
    """A word in a passage, cut into what stands before it, itself and what stands behind it."""

    slug: str
    doc_page: str
    passage: Passage
    before: str
    hit: str
    after: str


def slugs() -> list[str]:
    """All pages, in the order of the contents; the first page is the contents themselves."""
    return ["", *(entry.slug for group in contents() for entry in group.entries)]


def doc_page(slug: str) -> Rendered | None:
    """A page, or None where there is no such one."""
    path = _files().get(slug)
    return _file_page(path, path.stat().st_mtime_ns) if path else None


def contents() -> list[PageGroup]:
    """README.md's headings, and the links of their lists."""
    groups: list[tuple[str, list[Entry]]] = []
    for line in _files()[""].read_text().splitlines():
        if line.startswith("## "):
            groups.append((line.removeprefix("## "), []))
        elif groups and (entry := _ENTRY.match(line)):
            groups[-1][1].append(Entry(slug_of(entry[2]), entry[1]))
    return [PageGroup(title, tuple(entries)) for title, entries in groups if entries]


def search_docs(words: str) -> list[Found]:
    """Passages with all the words, those with one in their heading first."""
    terms = words.lower().split()
    if not terms:
        return []
    matches = [(passage, one) for one, passage in _found(terms)]
    matches.sort(key=lambda pair: not any(word in pair[0].heading.text.lower() for word in terms))
    return [one for _, one in matches[:MAX_FOUND]]


def _found(terms: list[str]) -> Iterator[tuple[Found, Passage]]:
    for slug in slugs()[1:]:
        rendered = doc_page(slug)
        for passage in rendered.passages if rendered else ():
            text = f"{passage.heading.text} {passage.text}".lower()
            if all(word in text for word in terms):
                yield _cut(slug, rendered.title if rendered else "", passage, terms), passage


def _cut(slug: str, title: str, passage: Passage, terms: list[str]) -> Found:
    """Around the first word that the text has; its beginning where only the heading has one."""
    at = re.search("|".join(map(re.escape, terms)), passage.text, re.IGNORECASE)
    start, end = at.span() if at else (0, 0)
    before = passage.text[max(0, start - AROUND) : start]
    after = passage.text[end : end + AROUND]
    return Found(
        slug,
        title,
        passage,
        ("…" if start > AROUND else "") + before,
        passage.text[start:end],
        after + ("…" if end + AROUND < len(passage.text) else ""),
    )


def _files() -> dict[str, Path]:
    return {slug_of(path.stem): path for path in FOLDER.glob("*.md")}


@lru_cache(maxsize=200)
def _file_page(path: Path, changed_ns: int) -> Rendered:
    return render(path.read_text(), reference.names(), defines_settings=path.stem == SETTINGS)
