"""The search field of every page."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from hacrl_web.docs.pages import search_docs
from hacrl_web.runs.search import MOST_OF_A_KIND, rows_named
from hacrl_web.web.page_query import PageQuery, Text


class SearchQuery(PageQuery):
    """`q` is a part of a name."""

    q: Text = ""


@require_GET
def find_page(request: HttpRequest) -> JsonResponse:
    """The search of every page: rows by name, and passages of the docs."""
    words = SearchQuery.read(request.GET).q
    answer = {"found": rows_named(request.user, words), "passages": _passages(words)}
    return JsonResponse(answer, headers={"Cache-Control": "no-store"})


def _passages(words: str) -> list[dict[str, str]]:
    """The first passages of the docs with these words, those with one in their heading before others."""
    return [
        {
            "kind": "docs",
            "name": f"{hit.page_title}: {hit.passage.heading.text}",
            "url": f"{reverse('docs:page', args=[hit.slug])}#{hit.passage.heading.anchor}",
        }
        for hit in search_docs(words)[:MOST_OF_A_KIND]
    ]
