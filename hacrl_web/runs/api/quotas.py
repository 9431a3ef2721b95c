"""The API's part for quotas of projects."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest
from ninja import Router
from typing_extensions import TypedDict

from hacrl_web.accounts.models import Project, Role
from hacrl_web.accounts.projects import project_for
from hacrl_web.runs.quotas import limits_of, set_limits, use_of
from hacrl_web.web.schemas import StrictBody

router = Router(tags=["projects"])


class QuotaUse(TypedDict):
    """gpu_hours: since the month began, UTC.  disk_gib: files of the project's runs, as last measured."""

    running: int
    waiting: int
    gpu_hours: float
    disk_gib: float


class QuotaLimitsAnswer(TypedDict):
    """null: no limit."""

    running: int | None
    waiting: int | None
    gpu_hours: float | None
    disk_gib: float | None


class QuotaAnswer(TypedDict):
    use: QuotaUse
    limits: QuotaLimitsAnswer


class QuotaIn(StrictBody):
    """null, or left out: no limit.  waiting: runs that are queued or paused.  gpu_hours: in a calendar month, UTC."""

    running: int | None = None
    waiting: int | None = None
    gpu_hours: float | None = None
    disk_gib: float | None = None


def _answer(project: Project) -> dict[str, Any]:
    return {"use": asdict(use_of(project)), "limits": limits_of(project).model_dump()}


@router.get("/projects/{int:project_id}/quota", response=QuotaAnswer, summary="What a project uses and may use")
def show_quota(request: HttpRequest, project_id: int) -> Any:
    return _answer(project_for(request, project_id, Role.VIEWER))


@router.put("/projects/{int:project_id}/quota", response=QuotaAnswer, summary="Set the quota of a project (staff)")
def change_quota(request: HttpRequest, project_id: int, payload: QuotaIn) -> Any:
    """All four limits are replaced. Runs under way go on."""
    project = project_for(request, project_id, Role.VIEWER)
    set_limits(request.user, project, payload.dict())
    return _answer(project)
