"""The API's part for the quota and the retention of a project."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router
from pydantic import ConfigDict
from typing_extensions import TypedDict

from hacrl_web.accounts.models import Project, Role
from hacrl_web.accounts.roles.projects import project_for
from hacrl_web.runs.limits.settings import QuotaLimits, RetentionDays
from hacrl_web.runs.limits.upkeep import ExpiryPreview, preview_of
from hacrl_web.runs.models.quotas import ProjectUse, use_of

router = Router(tags=["projects"])


class QuotaIn(QuotaLimits):
    model_config = ConfigDict(strict=True)


class RetentionIn(RetentionDays):
    model_config = ConfigDict(strict=True)


class QuotaAnswer(TypedDict):
    use: ProjectUse
    limits: QuotaLimits


def _quota(project: Project) -> QuotaAnswer:
    return {"use": use_of(project), "limits": QuotaLimits.of(project)}


@router.get("/projects/{int:project_id}/quota", response=QuotaAnswer, summary="What a project uses and may use")
def show_quota(request: HttpRequest, project_id: int) -> Any:
    return _quota(project_for(request, project_id, Role.VIEWER))


@router.put("/projects/{int:project_id}/quota", response=QuotaAnswer, summary="Set the quota of a project (staff)")
def change_quota(request: HttpRequest, project_id: int, payload: QuotaIn) -> Any:
    """Replace all four limits. Runs under way continue."""
    project = project_for(request, project_id, Role.VIEWER)
    QuotaLimits.replace(request.user, project, payload.model_dump())
    return _quota(project)


@router.get("/projects/{int:project_id}/retention", response=RetentionDays, summary="How long a project keeps files")
def show_retention(request: HttpRequest, project_id: int) -> Any:
    return RetentionDays.of(project_for(request, project_id, Role.VIEWER))


@router.get(
    "/projects/{int:project_id}/retention/preview", response=ExpiryPreview, summary="What a retention would remove now"
)
def preview_retention(request: HttpRequest, project_id: int, days: Query[RetentionDays]) -> Any:
    """What a retention would remove of the files on this host, for staff before they set it. Nothing is removed."""
    project = project_for(request, project_id, Role.VIEWER)
    return asdict(preview_of(project, RetentionDays.checked(request.user, days.model_dump())))


@router.put("/projects/{int:project_id}/retention", response=RetentionDays, summary="Set the retention (staff)")
def change_retention(request: HttpRequest, project_id: int, payload: RetentionIn) -> Any:
    """Replace both values. Within the hour, what is too old is deleted for good."""
    project = project_for(request, project_id, Role.VIEWER)
    RetentionDays.replace(request.user, project, payload.model_dump())
    return RetentionDays.of(project)
