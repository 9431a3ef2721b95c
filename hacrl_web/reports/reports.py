"""Creates, changes and deletes reports; for pages and API. Error: FieldErrors."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils import timezone

from hacrl_web.accounts.models import Project, Role, User
from hacrl_web.accounts.roles.projects import require, require_delete
from hacrl_web.reports.content import excess_of
from hacrl_web.reports.models import Report
from hacrl_web.web.errors import FieldError, FieldErrors

MAX_TITLE = 120
MAX_TEXT = 100_000  # characters
MAX_REPORTS = 1000  # of a project


def create_report(user: User, project: Project, title: str, text: str) -> Report:
    """For members of the project. Errors: FieldErrors (403, 422; 409 if the project has too many)."""
    require(user, project, Role.MEMBER)
    title, text = _checked(title, text)
    if Report.objects.filter(project=project).count() >= MAX_REPORTS:
        raise FieldErrors.single("too_many", f"A project has at most {MAX_REPORTS:,} reports: delete one.", status=409)
    return Report.objects.create(owner=user, project=project, title=title, text=text, changed_by=user.get_username())


def change_report(user: User, report: Report, version: int, title: str, text: str) -> Report:
    """For members of its project. version: of the text that was edited.

    Errors: FieldErrors (403, 422; 409 if somebody has saved another version since).
    """
    require(user, report.project, Role.MEMBER)
    title, text = _checked(title, text)
    columns = {"title": title, "text": text, "changed_at": timezone.now(), "changed_by": user.get_username()}
    unchanged = Report.objects.filter(pk=report.pk, version=version)
    if not unchanged.update(version=version + 1, **columns):
        report.refresh_from_db()  # Report.DoesNotExist: deleted meanwhile, which page and API say
        message = f"{report.changed_by} has saved version {report.version} since you began: nothing was overwritten."
        raise FieldErrors.single("conflict", message, "version", status=409)
    report.refresh_from_db()
    return report


def delete_report(user: User, report: Report) -> None:
    """For its owner and admins. Error: FieldErrors (403)."""
    require_delete(user, report)
    report.delete()


def _checked(title: str, text: str) -> tuple[str, str]:
    """Title and text as they are stored. Error: FieldErrors (422)."""
    title = " ".join(title.replace("\x00", "").split())
    text = text.replace("\x00", "").replace("\r\n", "\n").encode("utf-8", "replace").decode()
    errors = []
    if not title:
        errors.append(FieldError("missing", "A report needs a title.", "title"))
    if len(title) > MAX_TITLE:
        errors.append(FieldError("too_long", f"At most {MAX_TITLE} characters.", "title"))
    if len(text) > MAX_TEXT:
        errors.append(FieldError("too_long", f"At most {MAX_TEXT:,} characters; it has {len(text):,}.", "text"))
    elif excess := excess_of(text):
        errors.append(FieldError("too_much", excess, "text"))
    if errors:
        raise FieldErrors(errors)
    return title, text


def visible_report(request: HttpRequest, report_id: int) -> Report:
    """Error: Http404."""
    return get_object_or_404(Report.objects.visible_to(request.user).select_related("project"), pk=report_id)
