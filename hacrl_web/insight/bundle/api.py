"""The REST API's part for bundles: a run as one file, and its import."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import File, Query, Router, Status
from ninja.files import UploadedFile
from typing_extensions import TypedDict

from hacrl_web.insight.bundle.importing import import_bundle
from hacrl_web.insight.bundle.views import bundle_file
from hacrl_web.runs.models.requests import visible_run

router = Router(tags=["insight"])


class ImportAnswer(TypedDict):
    """id, url: of the new run.  notes: what of the bundle could not be brought along."""

    id: str
    url: str
    name: str
    notes: list[str]


@router.get("/runs/{run_id}/bundle.zip", summary="A run as one file that another installation imports")
def export_bundle(request: HttpRequest, run_id: UUID, checkpoints: bool = Query(False)) -> Any:
    """checkpoints: with the files of its checkpoints, where they are on this host."""
    return bundle_file(request, visible_run(request, run_id), checkpoints=checkpoints)


@router.post("/bundles", response={201: ImportAnswer}, summary="Import a run from a bundle")
def import_run(request: HttpRequest, file: File[UploadedFile]) -> Any:
    """Import a bundle into your current project, of which you are a member. The run keeps its id, times and numbers."""
    imported = import_bundle(request.user, file, file.size or 0)
    run = imported.run
    answer = {"id": str(run.pk), "url": run.get_absolute_url(), "name": run.name, "notes": imported.notes}
    return Status(201, answer)
