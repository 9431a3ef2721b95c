"""A report as links without a login and files show it (hacrl_web/sharing)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import QueryDict
from django.urls import ResolverMatch

from hacrl_web.accounts.models import Project, User
from hacrl_web.reports.content import report_parts
from hacrl_web.reports.models import Report

Content = tuple[Project, str, str, str, dict[str, Any]]


def _report(user: User, match: ResolverMatch, _: QueryDict, host: str) -> Content | None:
    row = Report.objects.visible_to(user).select_related("project").filter(pk=match.kwargs["report_id"]).first()
    if row is None:
        return None
    parts = report_parts(row, user, {host, urlsplit(settings.PUBLIC_URL).netloc} - {""}, is_shared=True)
    return row.project, row.title, row.get_absolute_url(), "reports/_parts.html", {"report": row, "parts": parts}


PAGES = {"reports:report": _report}
