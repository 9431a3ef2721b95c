"""The search by name among runs, sweeps and what is registered."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from hacrl_web.accounts.models import User
from hacrl_web.docs.pages import search_docs
from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.models import Run, Sweep
from hacrl_web.web.page_query import PageQuery, Text, clean_text

MOST_OF_A_KIND = 6
KINDS: dict[str, Any] = {
    "run": Run,
    "sweep": Sweep,
    "model": LanguageModel,
    "agent group": AgentGroup,
    "benchmark": Benchmark,
}


def rows_named(user: User, text: str) -> list[dict[str, str]]:
    """Kind, name and address of the newest rows of each kind with this text in their name."""
    results: list[dict[str, str]] = []
    if words := clean_text(text):
        for kind, model in KINDS.items():
            rows = model.objects.visible_to(user).filter(name__icontains=words)
            newest = rows.only("pk", "name").order_by("-created_at", "-pk")[:MOST_OF_A_KIND]
            results += [{"kind": kind, "name": row.name, "url": row.get_absolute_url()} for row in newest]
    return results


class SearchQuery(PageQuery):
    """`q` is a part of a name."""

    q: Text = ""


@require_GET
def find_page(request: HttpRequest) -> JsonResponse:
    """The search of every page: rows by name, and passages of the docs."""
    words = SearchQuery.read(request.GET).q
    answer = {"found": rows_named(request.user, words), "passages": _passages(words)}
    return JsonResponse(answer)


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
