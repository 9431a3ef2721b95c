"""The leaderboard: every comparison that the user may see, one board after the other."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from hacrl_web.leaderboard.scores import boards, sources

PAGE_SIZE = 8


@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """Boards, newest first: a sweep, or the single runs of one group on one benchmark."""
    page = Paginator(sources(request.user), PAGE_SIZE).get_page(request.GET.get("page"))
    page.object_list = boards(request.user, page.object_list)  # only this page's are worked out
    return render(request, "leaderboard/index.html", {"page": page})
