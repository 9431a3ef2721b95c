"""What the pages of all registered objects share: lists with earlier versions, and the page that deletes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from hacrl_web.accounts.roles.projects import require_delete
from hacrl_web.registry.models import VersionQuerySet
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import PageQuery, RowId, page_of

LIST_SIZE = 50
require_page = require_http_methods(["GET", "HEAD", "POST"])


def delete_page(
    request: HttpRequest, row: Any, delete: Callable[[Any], None], template: str, context: dict[str, Any]
) -> HttpResponse:
    """GET shows what is lost, POST deletes; both refuse a user who may not delete."""
    errors, status = [], 200
    try:
        require_delete(request.user, row)
        if request.method == "POST":
            delete(row)
            messages.info(request, f"{row.name} is deleted.")
            return redirect(row.page.replace("_detail", "_list"))
    except FieldErrors as refused:
        errors, status = refused.errors, refused.status
    return render(request, f"registry/{template}_delete.html", context | {"errors": errors}, status=status)


class VersionsQuery(PageQuery):
    """versions_of: the id of the row that is listed with its earlier versions."""

    versions_of: RowId | None = None


def versions_page(request: HttpRequest, rows: VersionQuerySet[Any]) -> dict[str, Any]:
    """The context of registry/_list_frame.html. Error: Http404 for versions of a row that is not listed."""
    query = VersionsQuery.read(request.GET)
    previous = dict(rows.exclude(edit_of=None).prefetch_related(None).order_by().values_list("pk", "edit_of"))
    latest = None
    if query.versions_of is None:
        rows = rows.newest_versions()
    else:
        latest = get_object_or_404(rows, pk=query.versions_of)
        rows = rows.filter(pk__in=[latest.pk, *_earlier(latest.pk, previous)])
    page = page_of(request, rows, LIST_SIZE)
    for row in page:
        row.num_earlier = sum(1 for _ in _earlier(row.pk, previous))
    return {"page": page, "latest": latest, "query": query.encode()}


def _earlier(pk: int, previous: Mapping[int, int]) -> Iterator[int]:
    """Ids of the versions before this row, the newest first. previous: of each edit, the version before."""
    while pk in previous:
        pk = previous[pk]
        yield pk
