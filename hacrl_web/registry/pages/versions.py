"""Lists of agent groups and benchmarks: the newest versions, or one of them with its earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from hacrl_web.registry.models import VersionQuerySet
from hacrl_web.web.page_query import PageQuery, RowId, page_of

LIST_SIZE = 50


class VersionsQuery(PageQuery):
    """versions_of: the id of the row that is listed with its earlier versions."""

    versions_of: RowId | None = None


def versions_page(request: HttpRequest, rows: VersionQuerySet[Any]) -> dict[str, Any]:
    """What registry/_list_frame.html shows of these rows. Error: Http404 for versions of a row that is not listed."""
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
