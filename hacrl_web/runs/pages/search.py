"""The search field of every page."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_GET

from hacrl_web.runs.search import rows_named
from hacrl_web.web.page_query import PageQuery, Text


class SearchQuery(PageQuery):
    """`q` is a part of a name."""

    q: Text = ""


@require_GET
def find_page(request: HttpRequest) -> JsonResponse:
    """The search of every page."""
    results = rows_named(request.user, SearchQuery.read(request.GET).q)
    return JsonResponse({"found": results}, headers={"Cache-Control": "no-store"})
