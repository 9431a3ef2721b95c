"""The pages of reports: their list, one report, and its editor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.views.decorators.http import require_GET, require_http_methods
from pydantic import Field

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.roles.projects import for_members, project_of_new, require, require_delete, role_in
from hacrl_web.reports.content import panel_at, report_parts
from hacrl_web.reports.models import Report
from hacrl_web.reports.panels import Panel
from hacrl_web.reports.reports import MAX_TEXT, MAX_TITLE, change_report, create_report, delete_report, visible_report
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import PageQuery, Text, Whole, page_of, whole_number
from hacrl_web.web.streaming import download

PAGE_SIZE = 50
MAX_ADDRESS = 2000  # characters


class ReportListQuery(PageQuery):
    """q: text to search titles and texts by."""

    q: Text = ""


class NewReportQuery(PageQuery):
    """show: an address of the product, which becomes the first panel."""

    show: str = Field("", max_length=MAX_ADDRESS)


class PanelQuery(PageQuery):
    """version: of the report in which the panel has its number."""

    version: Whole = 0


def _hosts(request: HttpRequest) -> set[str]:
    """Names under which browsers reach the product."""
    return {request.get_host(), urlsplit(settings.PUBLIC_URL).netloc} - {""}


@require_GET
def report_list(request: HttpRequest) -> HttpResponse:
    """Reports of the project, those that were changed last first."""
    query = ReportListQuery.read(request.GET)
    every = Report.objects.listed_for(request.user).select_related("project", "owner").defer("text")
    matches = every.filter(title__icontains=query.q) | every.filter(text__icontains=query.q) if query.q else every
    page = page_of(request, matches, PAGE_SIZE)
    context = {
        "page": page,
        "search": query.q,
        "query": query.encode(),
        "is_empty": not query.q and not page.object_list,
    }
    return render(request, "reports/report_list.html", context)


@require_GET
def report_page(request: HttpRequest, report_id: int) -> HttpResponse:
    row = visible_report(request, report_id)
    context = {
        "report": row,
        "parts": report_parts(row, request.user, _hosts(request)),
        "can_delete": row.owner_id == request.user.pk or role_in(request.user, row.project) == Role.ADMIN,
    }
    return render(request, "reports/report.html", context)


@require_GET
def report_panel(request: HttpRequest, report_id: int, number: int) -> HttpResponse:
    """One panel, for its place in the page."""
    row = visible_report(request, report_id)
    panel: Panel | None
    if PanelQuery.read(request.GET).version not in (0, row.version):
        panel = Panel("", "Panel", problem="The report has changed: load the page again.")
    else:
        panel = panel_at(row, request.user, _hosts(request), number)
    if panel is None:
        raise Http404
    return render(request, "reports/_panel.html", {"panel": panel})


@require_GET
def report_text(request: HttpRequest, report_id: int) -> StreamingHttpResponse:
    """The report as a Markdown file."""
    row = visible_report(request, report_id)
    text = f"# {row.title}\n\n{row.text}"
    return download(request, iter([text]), f"{slugify(row.title)[:60] or 'report'}.md", "text/markdown")


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def report_create(request: HttpRequest) -> HttpResponse:
    """POST: `title`, `text`; `do`: save or preview."""
    project = project_of_new(request.user)
    if request.method != "POST":
        address = NewReportQuery.read(request.GET).show
        return _editor(request, Report(project=project, text=f"\n{address}\n" if address else ""))
    typed = Report(project=project, title=request.POST.get("title", ""), text=request.POST.get("text", ""))
    return _previewed_or_saved(request, typed, lambda: create_report(request.user, project, typed.title, typed.text))


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def report_edit(request: HttpRequest, report_id: int) -> HttpResponse:
    """POST: `title`, `text`, `version` of the text that was edited; `do`: save or preview."""
    row = visible_report(request, report_id)
    require(request.user, row.project, Role.MEMBER)
    if request.method != "POST":
        return _editor(request, row)
    version = whole_number(request.POST.get("version", "")) or 0
    typed = Report(pk=row.pk, project=row.project, version=version, owner_id=row.owner_id)
    typed.title, typed.text = request.POST.get("title", ""), request.POST.get("text", "")
    return _previewed_or_saved(
        request, typed, lambda: change_report(request.user, row, version, typed.title, typed.text)
    )


def _previewed_or_saved(request: HttpRequest, typed: Report, save: Callable[[], Report]) -> HttpResponse:
    """What is refused stays in the editor, except to those who may not write."""
    if request.POST.get("do") == "preview":
        return _editor(request, typed, is_preview=True)
    try:
        row = save()
    except FieldErrors as refused:
        if refused.status == 403:
            raise
        return _editor(request, typed, refused.status, errors=refused.errors)
    messages.success(request, "The report is saved.")
    return redirect(row)


def _editor(
    request: HttpRequest, typed: Report, status: int = 200, *, is_preview: bool = False, **more: Any
) -> HttpResponse:
    context = {
        "report": typed,
        "is_new": typed.pk is None,
        "is_preview": is_preview,
        "parts": report_parts(typed, request.user, _hosts(request)) if is_preview else [],
        "max_title": MAX_TITLE,
        "max_text": MAX_TEXT,
    }
    return render(request, "reports/report_form.html", context | more, status=status)


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def report_delete(request: HttpRequest, report_id: int) -> HttpResponse:
    """A GET asks for confirmation."""
    row = visible_report(request, report_id)
    require_delete(request.user, row)
    if request.method != "POST":
        return render(request, "reports/report_delete.html", {"report": row})
    delete_report(request.user, row)
    messages.success(request, f"The report {row.title} is deleted.")
    return redirect("reports:report_list")
