"""Page of the audit log, for staff and admins of projects: filters, and the matching entries as CSV."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from itertools import chain
from typing import Annotated, Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET
from pydantic import Field

from hacrl_web.accounts.audit.audit_log import AuditEntry, AuditEntryQuerySet
from hacrl_web.accounts.models import Project
from hacrl_web.accounts.roles.projects import administers, forbidden
from hacrl_web.web.page_query import PageQuery, RowId, Text, page_of
from hacrl_web.web.streaming import download_csv

PAGE_SIZE = 50
MAX_CHOICES = 200
COLUMNS = ("at", "actor", "via", "address", "action", "kind", "object_id", "name", "project_id", "before", "after")


Day = Annotated[date, Field(ge=date(1971, 1, 1), lt=date(9999, 1, 1))]


class AuditFilters(PageQuery):
    """since, until: days in UTC.  q: part of an object's name, or its id."""

    actor: Text = ""
    kind: Text = ""
    action: Text = ""
    q: Text = ""
    project: RowId | None = None
    since: Day | None = None
    until: Day | None = None

    def entries(self, request: HttpRequest) -> AuditEntryQuerySet:
        """The matching entries that the user may see. Error: FieldErrors (403)."""
        entries = visible_entries(request)
        for name in ("actor", "kind", "action"):
            if value := getattr(self, name):
                entries = entries.filter(**{name: value})
        if self.project is not None:
            entries = entries.filter(project_id=self.project)
        if self.q:
            entries = entries.filter(Q(name__icontains=self.q) | Q(object_id=self.q))
        if self.since:
            entries = entries.filter(at__gte=_start_of(self.since))
        if self.until:
            entries = entries.filter(at__lt=_start_of(self.until) + timedelta(days=1))
        return entries


def _start_of(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time()))


def visible_entries(request: HttpRequest) -> AuditEntryQuerySet:
    """Error: FieldErrors (403) for a user who is neither staff nor an admin."""
    if not administers(request.user):
        raise forbidden("Only staff and the admins of projects may read the audit log.")
    return AuditEntry.objects.all().visible_to(request.user)


@require_GET
def audit_list(request: HttpRequest) -> HttpResponse:
    """The page of entries, the newest first."""
    visible = visible_entries(request)
    filters = AuditFilters.read(request.GET)
    page = page_of(request, filters.entries(request), PAGE_SIZE)
    names = dict(Project.objects.filter(pk__in={one.project_id for one in page}).values_list("pk", "name"))
    context = {
        "page": page,
        "rows": [{"entry": entry, "project": names.get(entry.project_id)} for entry in page],
        "filters": filters,
        "query": filters.encode(),
        "actors": _choices(visible, "actor"),
        "kinds": _choices(visible, "kind"),
        "actions": _choices(visible, "action"),
        "projects": Project.objects.visible_to(request.user)[:MAX_CHOICES],
    }
    return render(request, "accounts/people/audit_log.html", context)


def _choices(entries: AuditEntryQuerySet, name: str) -> list[str]:
    return list(entries.order_by(name).values_list(name, flat=True).distinct()[:MAX_CHOICES])


@require_GET
def audit_csv(request: HttpRequest) -> StreamingHttpResponse:
    """The matching entries as CSV, with the values before and after as JSON."""
    entries = AuditFilters.read(request.GET).entries(request).iterator(chunk_size=500)
    rows = ([_cell(getattr(entry, name)) for name in COLUMNS] for entry in entries)
    return download_csv(request, chain([COLUMNS], rows), "audit.csv")


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
