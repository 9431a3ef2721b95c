"""Page of the audit log, for staff and for admins of projects: filters, and a CSV of what they leave."""

from __future__ import annotations

import json
from datetime import datetime, time, timedelta
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.views.decorators.http import require_GET

from hacrl_web.accounts.audit_log import AuditEntry, AuditEntryQuerySet
from hacrl_web.accounts.models import Project
from hacrl_web.accounts.projects import administers
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.streaming import download_csv

PAGE_SIZE = 50
MAX_CHOICES = 200
COLUMNS = ("at", "actor", "via", "address", "action", "kind", "object_id", "name", "project_id", "before", "after")
TEXTS = ("actor", "kind", "action", "q", "project", "since", "until")


@require_GET
def audit_list(request: HttpRequest) -> HttpResponse:
    """Newest first. Odd values of a filter show everything, not an error."""
    visible = visible_entries(request)
    filters = _asked(request)
    page = Paginator(filtered(visible, filters), PAGE_SIZE).get_page(request.GET.get("page"))
    names = dict(Project.objects.filter(pk__in={one.project_id for one in page}).values_list("pk", "name"))
    context = {
        "page": page,
        "rows": [{"entry": entry, "project": names.get(entry.project_id)} for entry in page],
        "asked": filters,
        "query": urlencode({name: value for name, value in filters.items() if value}),
        "actors": _choices(visible, "actor"),
        "kinds": _choices(visible, "kind"),
        "actions": _choices(visible, "action"),
        "projects": Project.objects.visible_to(request.user)[:MAX_CHOICES],
    }
    return render(request, "accounts/audit_list.html", context)


@require_GET
def audit_csv(request: HttpRequest) -> StreamingHttpResponse:
    """All entries that the filters leave, before and after as JSON."""
    entries = filtered(visible_entries(request), _asked(request))
    cells = ([_cell(getattr(entry, name)) for name in COLUMNS] for entry in entries.iterator(chunk_size=500))
    return download_csv(request, chain([COLUMNS], cells), "audit.csv")


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


def visible_entries(request: HttpRequest) -> AuditEntryQuerySet:
    """Error: FieldErrors (403) for who administers nothing."""
    if not administers(request.user):
        message = "The audit log is for staff and for the admins of projects."
        raise FieldErrors([FieldError("forbidden", message, None)], 403)
    return AuditEntry.objects.all().visible_to(request.user)


def _asked(request: HttpRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "").replace("\x00", "").strip()[:200] for name in TEXTS}


def filtered(entries: AuditEntryQuerySet, filters: dict[str, str]) -> AuditEntryQuerySet:
    for name in ("actor", "kind", "action"):
        if filters[name]:
            entries = entries.filter(**{name: filters[name]})
    if filters["project"].isascii() and filters["project"].isdigit() and len(filters["project"]) < 19:
        entries = entries.filter(project_id=int(filters["project"]))
    if filters["q"]:
        entries = entries.filter(Q(name__icontains=filters["q"]) | Q(object_id=filters["q"]))
    since, until = _day(filters["since"]), _day(filters["until"])
    if since:
        entries = entries.filter(at__gte=since)
    if until:
        entries = entries.filter(at__lt=until + timedelta(days=1))
    return entries


def _day(text: str) -> datetime | None:
    """Its beginning in UTC."""
    try:
        day = parse_date(text)
        return timezone.make_aware(datetime.combine(day, time())) if day and 1970 < day.year < 9999 else None
    except ValueError:
        return None


def _choices(entries: AuditEntryQuerySet, name: str) -> list[str]:
    return list(entries.order_by(name).values_list(name, flat=True).distinct()[:MAX_CHOICES])
