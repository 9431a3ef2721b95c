"""The API's part for the retention of projects."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router
from typing_extensions import TypedDict

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import project_for
from hacrl_web.runs.retention.expiry import expiry_preview
from hacrl_web.runs.retention.settings import checked_retention, retention_of, set_retention
from hacrl_web.web.schemas import StrictBody

router = Router(tags=["projects"])


class RetentionAnswer(TypedDict):
    """checkpoint_days: after the end of a run.  archived_days: after a run was archived.  null: never."""

    checkpoint_days: int | None
    archived_days: int | None


class RetentionIn(StrictBody):
    """Days, 1 to 3650; null, or left out: never."""

    checkpoint_days: int | None = None
    archived_days: int | None = None


class ExpiryAnswer(TypedDict):
    """file_runs: runs that lose checkpoints.  archived_runs: runs that are deleted.

    file_bytes, archived_bytes: all files of these runs, as last measured, so at most this much is freed.
    """

    file_runs: int
    file_bytes: int
    archived_runs: int
    archived_bytes: int


@router.get("/projects/{int:project_id}/retention", response=RetentionAnswer, summary="How long a project keeps files")
def show_retention(request: HttpRequest, project_id: int) -> Any:
    return retention_of(project_for(request, project_id, Role.VIEWER)).model_dump()


@router.get(
    "/projects/{int:project_id}/retention/preview", response=ExpiryAnswer, summary="What a retention would remove now"
)
def preview_retention(
    request: HttpRequest,
    project_id: int,
    checkpoint_days: Annotated[int | None, Query()] = None,
    archived_days: Annotated[int | None, Query()] = None,
) -> Any:
    """For staff, before they set it. Of the files on this host; nothing is removed."""
    project = project_for(request, project_id, Role.VIEWER)
    values = {"checkpoint_days": checkpoint_days, "archived_days": archived_days}
    return asdict(expiry_preview(project, checked_retention(request.user, values)))


@router.put("/projects/{int:project_id}/retention", response=RetentionAnswer, summary="Set the retention (staff)")
def change_retention(request: HttpRequest, project_id: int, payload: RetentionIn) -> Any:
    """Both values are replaced. What is too old is then deleted permanently within the hour."""
    project = project_for(request, project_id, Role.VIEWER)
    return set_retention(request.user, project, payload.dict()).model_dump()
