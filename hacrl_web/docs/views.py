"""Views of the docs: a page of them, and the search. They need a login like all pages, and no row but the user's."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from hacrl_web.docs import pages

MAX_WORDS = 100  # characters of a search


@require_safe
def show_page(request: HttpRequest, slug: str = "") -> HttpResponse:
    """A page of docs/ with the contents beside it."""
    page = pages.doc_page(slug)
    if page is None:
        raise Http404
    headings = [heading for heading in page.headings if heading.level == 2]
    context = {"page": page, "slug": slug, "headings": headings, "groups": pages.contents()}
    return render(request, "docs/page.html", context)


@require_safe
def search_page(request: HttpRequest) -> HttpResponse:
    """Where all words of `q` stand in one passage."""
    words = request.GET.get("q", "").replace("\0", "")[:MAX_WORDS].strip()
    context = {
        "words": words,
        "found": pages.search_docs(words),
        "max_found": pages.MAX_FOUND,
        "groups": pages.contents(),
    }
    return render(request, "docs/search.html", context)
