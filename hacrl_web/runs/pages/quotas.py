"""The quota of a project on its page: what is used and may be used, and how staff set it."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from hacrl_web.accounts.models import Project, Role
from hacrl_web.accounts.projects import project_for
from hacrl_web.runs.quotas import NAMES, limits_of, set_limits, use_of
from hacrl_web.web.errors import FieldErrors

LABELS = {
    "running": "Runs at once",
    "waiting": "Waiting runs (queued or paused)",
    "gpu_hours": "GPU hours this month (UTC)",
    "disk_gib": "Disk of its runs, GiB",
}


@dataclass(frozen=True)
class QuotaRow:
    """One of the four limits. limit: empty for none; step: of the form's field."""

    name: str
    label: str
    used: str
    limit: str
    is_reached: bool
    step: str


def quota_rows(project: Project) -> list[QuotaRow]:
    use, limits = use_of(project), limits_of(project)
    rows = []
    for name in NAMES:
        used, limit = getattr(use, name), getattr(limits, name)
        is_count = isinstance(used, int)
        rows.append(
            QuotaRow(
                name=name,
                label=LABELS[name],
                used=f"{used:,}" if is_count else f"{used:,.1f}",
                limit="" if limit is None else f"{limit:g}",
                is_reached=limit is not None and used >= limit,
                step="1" if is_count else "any",
            )
        )
    return rows


@require_POST
def quota_change(request: HttpRequest, project_id: int) -> HttpResponse:
    """Set all four limits; an empty field is no limit. Staff only."""
    project = project_for(request, project_id, Role.VIEWER)
    try:
        set_limits(request.user, project, {name: request.POST.get(name, "").strip() for name in NAMES})
        messages.success(request, f"The quota of “{project}” is set.")
    except FieldErrors as refused:
        if refused.status == 403:
            raise
        messages.error(request, " ".join(f"{LABELS.get(e.field or '', e.field)}: {e.message}" for e in refused.errors))
    return redirect(project)
