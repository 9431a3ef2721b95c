"""The API's part for what a run takes on the disk, and for deleting a benchmark."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Router, Status

from hacrl_web.accounts.roles.projects import require_delete
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.archive import archive
from hacrl_web.runs.archive.disk_use import DiskUse, disk_use
from hacrl_web.runs.models.requests import visible_run

router = Router(tags=["runs"])


@router.post("/benchmarks/{int:pk}/delete", response={204: None}, summary="Delete a benchmark")
def remove_benchmark(request: HttpRequest, pk: int) -> Any:
    """Delete a benchmark with its questions, unless runs that have not ended need it."""
    benchmark = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)
    require_delete(request.user, benchmark)
    archive.delete_benchmark(benchmark)
    return Status(204, None)


@router.get("/runs/{run_id}/disk", response=DiskUse, summary="What a run takes on the disk")
def get_disk(request: HttpRequest, run_id: UUID) -> Any:
    """`files_bytes` is null where the run directory lies on another host."""
    return disk_use(visible_run(request, run_id))
