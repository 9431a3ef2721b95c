"""The quota and the retention of a project on its page, and how staff set them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from hacrl_web.accounts.models import Project, Role
from hacrl_web.accounts.roles.projects import project_for
from hacrl_web.runs.limits.settings import ProjectSettings, QuotaLimits, RetentionDays
from hacrl_web.runs.limits.upkeep import preview_of
from hacrl_web.runs.models.quotas import use_of
from hacrl_web.web.errors import FieldErrors


@dataclass(frozen=True)
class SettingRow:
    """One setting. value: empty for None; used: what the project uses of it now, of a quota."""

    name: str
    label: str
    value: str
    used: str = ""
    is_reached: bool = False


def _rows(settings: ProjectSettings, use: Mapping[str, Any] | None = None) -> Iterator[SettingRow]:
    for name, field in type(settings).model_fields.items():
        value, used = getattr(settings, name), (use or {}).get(name)
        is_reached = value is not None and used is not None and used >= value
        text = "" if used is None else f"{used:,}" if isinstance(used, int) else f"{used:,.1f}"
        yield SettingRow(name, str(field.title), "" if value is None else f"{value:g}", text, is_reached)


def cards(project: Project) -> dict[str, list[SettingRow]]:
    """What the project uses, may use and keeps."""
    return {
        "quota": [*_rows(QuotaLimits.of(project), use_of(project))],
        "retention": [*_rows(RetentionDays.of(project))],
    }


@require_POST
def quota_change(request: HttpRequest, project_id: int) -> HttpResponse:
    """Set all four limits; an empty field is no limit. Staff only."""
    return _change(request, project_id, QuotaLimits)


@require_http_methods(["GET", "HEAD", "POST"])
def retention_change(request: HttpRequest, project_id: int) -> HttpResponse:
    """GET: what the values of the address would remove now. POST: set both; an empty field is never. Staff only."""
    return _change(request, project_id, RetentionDays)


def _change(request: HttpRequest, project_id: int, kind: type[ProjectSettings]) -> HttpResponse:
    project = project_for(request, project_id, Role.VIEWER)
    source = request.POST if request.method == "POST" else request.GET
    values = {name: source.get(name, "").strip() for name in kind.model_fields}
    try:
        if request.method != "POST":
            days = RetentionDays.checked(request.user, values)
            context = {"project": project, "rows": [*_rows(days)], "preview": preview_of(project, days)}
            return render(request, "limits/removal_preview.html", context)
        kind.replace(request.user, project, values)
        messages.success(request, f"Set: {kind.noun} of “{project}”.")
    except FieldErrors as refused:
        if refused.status == 403:
            raise
        titles = {name: field.title for name, field in kind.model_fields.items()}
        messages.error(request, " ".join(f"{titles.get(e.field or '', e.field)}: {e.message}" for e in refused.errors))
    return redirect(project)
