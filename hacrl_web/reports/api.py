"""The REST API's part for reports."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from typing_extensions import TypedDict

from hacrl_web.accounts.roles.projects import project_of_new
from hacrl_web.reports.models import Report
from hacrl_web.reports.reports import change_report, create_report, delete_report, visible_report
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

router = Router(tags=["reports"])


class ReportSummary(TypedDict):
    """version grows with every change.  changed_by: name of the user."""

    id: int
    project: int
    title: str
    version: int
    created_at: datetime
    changed_at: datetime
    changed_by: str


class ReportState(ReportSummary):
    """text: Markdown, where a paragraph that is an address of the product is a panel (docs/reports.md)."""

    text: str


class ReportIn(StrictBody):
    """text: Markdown."""

    title: str
    text: str = ""


class ReportChange(StrictBody):
    """text: Markdown.  version: of the text that was edited; if somebody has saved another since, the answer is 409."""

    title: str
    text: str
    version: int


def _summary(row: Report) -> ReportSummary:
    return {
        "id": row.pk,
        "project": row.project_id,
        "title": row.title,
        "version": row.version,
        "created_at": row.created_at,
        "changed_at": row.changed_at,
        "changed_by": row.changed_by,
    }


def _state(row: Report) -> ReportState:
    return {**_summary(row), "text": row.text}


@router.get("/reports", response=PageOf[ReportSummary], summary="The reports of the project, those changed last first")
def list_reports(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(Report.objects.listed_for(request.user).defer("text"), query, _summary)


@router.post("/reports", response={201: ReportState}, summary="Write a report (members)")
def add_report(request: HttpRequest, payload: ReportIn) -> Any:
    project = project_of_new(request.user)
    return Status(201, _state(create_report(request.user, project, payload.title, payload.text)))


@router.get("/reports/{int:report_id}", response=ReportState, summary="A report with its text")
def read_report(request: HttpRequest, report_id: int) -> Any:
    return _state(visible_report(request, report_id))


@router.put("/reports/{int:report_id}", response=ReportState, summary="Change a report (members)")
def edit_report(request: HttpRequest, report_id: int, payload: ReportChange) -> Any:
    row = visible_report(request, report_id)
    return _state(change_report(request.user, row, payload.version, payload.title, payload.text))


@router.delete("/reports/{int:report_id}", response={204: None}, summary="Delete a report (its owner and admins)")
def remove_report(request: HttpRequest, report_id: int) -> Any:
    delete_report(request.user, visible_report(request, report_id))
    return Status(204, None)
