"""The REST API's part for a run's settings as files."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from ninja import Router

from hacrl_web.insight.spec_files import as_verl_yaml, as_yaml
from hacrl_web.runs.models import Run

YAML = "application/yaml; charset=utf-8"
router = Router(tags=["insight"])


@router.get("/runs/{run_id}/config.yaml", summary="The settings of a run as YAML, to train from by `python -m workers`")
def get_yaml(request: HttpRequest, run_id: UUID) -> HttpResponse:
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    return HttpResponse(as_yaml(run), content_type=YAML)


@router.get("/runs/{run_id}/verl.yaml", summary="The settings of a two-agent HACPO run for verl's recipe")
def get_verl_yaml(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """409 with the reason where the recipe would train something else."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    return HttpResponse(as_verl_yaml(run), content_type=YAML)
