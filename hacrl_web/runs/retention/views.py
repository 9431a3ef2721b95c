"""The retention of a project on its page: what is kept and how long, and the page on which staff set it."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import project_for
from hacrl_web.runs.retention.expiry import expiry_preview
from hacrl_web.runs.retention.settings import DAY_NAMES, MAX_DAYS, RetentionDays, checked_retention, set_retention
from hacrl_web.web.errors import FieldErrors

DAY_LABELS = {
    "checkpoint_days": ("Checkpoints", "after the end of their run"),
    "archived_days": ("Archived runs", "after they were archived"),
}


@dataclass(frozen=True)
class RetentionRow:
    """One of the two values. since: from when the days count; days: None for never."""

    name: str
    label: str
    since: str
    days: int | None
    most: int = MAX_DAYS

    @property
    def text(self) -> str:
        return "never" if self.days is None else f"{self.days:,} day{'' if self.days == 1 else 's'} {self.since}"


def retention_rows(values: RetentionDays) -> list[RetentionRow]:
    return [RetentionRow(name, *DAY_LABELS[name], days) for name, days in values.model_dump().items()]


@require_http_methods(["GET", "HEAD", "POST"])
def retention_change(request: HttpRequest, project_id: int) -> HttpResponse:
    """GET: what the values of the address would remove now. POST: set both; an empty field is never. Staff only."""
    project = project_for(request, project_id, Role.VIEWER)
    source = request.POST if request.method == "POST" else request.GET
    values = {name: source.get(name, "").strip() for name in DAY_NAMES}
    try:
        if request.method != "POST":
            days = checked_retention(request.user, values)
            context = {"project": project, "rows": retention_rows(days), "preview": expiry_preview(project, days)}
            return render(request, "runs/archive/retention.html", context)
        set_retention(request.user, project, values)
        messages.success(request, f"The retention of “{project}” is set.")
    except FieldErrors as refused:
        if refused.status == 403:
            raise
        texts = (f"{' '.join(DAY_LABELS.get(e.field or '', ()))}: {e.message}" for e in refused.errors)
        messages.error(request, " ".join(texts))
    return redirect(project)
