"""What pages and API read of a request: the report that it names."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from hacrl_web.reports.models import Report


def visible_report(request: HttpRequest, report_id: int) -> Report:
    """Error: Http404."""
    return get_object_or_404(Report.objects.visible_to(request.user).select_related("project"), pk=report_id)
