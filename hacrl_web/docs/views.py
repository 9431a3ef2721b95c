"""Views of the docs: a page, and the search. They need a login, and no database row but the user's."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from hacrl_web.docs import pages
from hacrl_web.web.page_query import PageQuery, Text


class DocsQuery(PageQuery):
    q: Text = ""


@require_safe
def show_page(request: HttpRequest, slug: str = "") -> HttpResponse:
    """A page of docs/, beside the contents."""
    page = pages.doc_page(slug)
    if page is None:
        raise Http404
    headings = [heading for heading in page.headings if heading.level == 2]
    context = {"page": page, "slug": slug, "headings": headings, "groups": pages.contents()}
    return render(request, "docs/page.html", context)


@require_safe
def search_page(request: HttpRequest) -> HttpResponse:
    """The passages that contain all words of `q`."""
    words = DocsQuery.read(request.GET).q
    context = {"words": words, "hits": pages.search_docs(words), "max_hits": pages.MAX_HITS}
    return render(request, "docs/search.html", context | {"groups": pages.contents()})
