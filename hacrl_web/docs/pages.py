"""The pages of docs/ in the order of their contents, and the search in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from hacrl_web.docs import reference
from hacrl_web.docs.markdown import Passage, Rendered, render, slug_of

FOLDER = settings.BASE_DIR / "docs"
SETTINGS = "settings"  # the page that reference.py generates
MAX_HITS = 60
AROUND = 90  # characters shown on either side of a hit
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
class SearchHit:
    """A passage that contains all words of a search; its text around the first of them: before, word, after."""

    slug: str
    page_title: str
    passage: Passage
    before: str
    word: str
    after: str


def slugs() -> list[str]:
    """All pages in the order of the contents, after the contents themselves."""
    return ["", *(entry.slug for group in contents() for entry in group.entries)]


def doc_page(slug: str) -> Rendered | None:
    """The rendered page, or None if it does not exist."""
    path = _files().get(slug)
    return _file_page(path, path.stat().st_mtime_ns) if path else None


def contents() -> list[PageGroup]:
    """The headings of README.md with the links of their lists."""
    groups: list[tuple[str, list[Entry]]] = []
    for line in _files()[""].read_text().splitlines():
        if line.startswith("## "):
            groups.append((line.removeprefix("## "), []))
        elif groups and (entry := _ENTRY.match(line)):
            groups[-1][1].append(Entry(slug_of(entry[2]), entry[1]))
    return [PageGroup(title, tuple(entries)) for title, entries in groups if entries]


def search_docs(words: str) -> list[SearchHit]:
    """Passages that contain all the words; those with one in their heading come first."""
    terms = words.lower().split()
    hits = []
    for slug in slugs()[1:] if terms else ():
        page = doc_page(slug)
        for passage in page.passages if page else ():
            text = f"{passage.heading.text} {passage.text}".lower()
            if page and all(term in text for term in terms):
                hits.append(_hit(slug, page.title, passage, terms))
    hits.sort(key=lambda hit: not any(term in hit.passage.heading.text.lower() for term in terms))
    return hits[:MAX_HITS]


def _hit(slug: str, title: str, passage: Passage, terms: list[str]) -> SearchHit:
    """The passage as a hit, cut around the first term in its text, or at its start if only the heading has a term."""
    text = passage.text
    match = re.search("|".join(map(re.escape, terms)), text, re.IGNORECASE)
    start, end = match.span() if match else (0, 0)
    before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    if start > AROUND:  # from the next whole word on
        before = "… " + before.partition(" ")[2]
    if end + AROUND < len(text):
        after = after.rpartition(" ")[0] + " …"
    return SearchHit(slug, title, passage, before, text[start:end], after)


def _files() -> dict[str, Path]:
    return {slug_of(path.stem): path for path in FOLDER.glob("*.md")}


@lru_cache(maxsize=200)
def _file_page(path: Path, changed_ns: int) -> Rendered:
    return render(path.read_text(), reference.names(), defines_settings=path.stem == SETTINGS)
