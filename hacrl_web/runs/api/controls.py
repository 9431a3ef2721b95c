"""The API's part for controlling runs and hosts: stop, pause, resume, reorder the queue, drain or forget a host."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Query, Router, Status

from hacrl_web.runs.api.runs import run_summary_row
from hacrl_web.runs.api.schemas import HostAnswer, PlacedRun, RunRow
from hacrl_web.runs.launch import queue
from hacrl_web.runs.models import Host
from hacrl_web.runs.models.requests import change_reason, visible_run
from hacrl_web.runs.worker.hosts import change_drain, forget_host
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

router = Router(tags=["runs"])


class Why(StrictBody):
    why: Annotated[str, Field(max_length=200, description="In your words; shown on the run's page.")] = ""


@router.post("/runs/{run_id}/stop", response=RunRow, summary="Stop a run; a second call does nothing")
def stop_run(request: HttpRequest, run_id: UUID) -> Any:
    run = visible_run(request, run_id)
    run.request_stop(change_reason("stopped", request))
    return run_summary_row(run)


@router.post("/runs/{run_id}/pause", response=RunRow, summary="Pause a run: after its step, with a checkpoint")
def pause_run(request: HttpRequest, run_id: UUID, payload: Why | None = None) -> Any:
    """A queued run leaves the queue. A second call, or one after its end, does nothing."""
    run = visible_run(request, run_id)
    run.request_pause(change_reason("paused", request, payload.why if payload else ""))
    return run_summary_row(run)


@router.post(
    "/runs/{run_id}/resume", response=RunRow, summary="Queue a paused run again; it continues from its checkpoint"
)
def resume_run(request: HttpRequest, run_id: UUID) -> Any:
    """A second call does nothing. 409 after its end: see /runs/{run_id}/retry."""
    run = visible_run(request, run_id)
    run.request_resume(change_reason("resumed", request))
    if run.is_terminal:
        message = f"The run has ended ({run.state}) and cannot continue; retry it, which starts a new one from step 0."
        raise FieldErrors.single("ended", message, status=409)
    return run_summary_row(run)


class Place(StrictBody):
    """`place`: 1 is the first among the user's own waiting runs.  `priority`: higher starts first."""

    place: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    priority: Annotated[int, Field(ge=-queue.MAX_PRIORITY, le=queue.MAX_PRIORITY)] | None = None


@router.post("/runs/{run_id}/queue", response=PlacedRun, summary="Change a waiting run's place or priority")
def queue_run(request: HttpRequest, run_id: UUID, payload: Place) -> Any:
    run = visible_run(request, run_id)
    queue.reorder(request.user, run, place=payload.place, priority=payload.priority)
    return {**run_summary_row(run), "place_in_queue": queue.place_in_queue(run)}


def host_summary(host: Host) -> dict[str, Any]:
    return {name: getattr(host, name) for name in HostAnswer.__annotations__}


@router.get("/hosts", response=PageOf[HostAnswer], summary="Hosts that have sent a heartbeat")
def list_hosts(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(Host.objects.order_by("name"), query, host_summary)


class DrainOrder(Why):
    """`drain`: no (it takes runs), finish (no new ones), now (running ones are saved and requeued)."""

    name: Annotated[str, Field(max_length=255)]
    drain: Literal["no", "finish", "now"]


@router.post("/hosts/drain", response=HostAnswer, summary="Let a host take no more runs, or take them again; for staff")
def drain_host(request: HttpRequest, payload: DrainOrder) -> Any:
    reason = change_reason("drained", request, payload.why)
    return host_summary(change_drain(request.user, payload.name, payload.drain, reason))


class HostName(StrictBody):
    name: Annotated[str, Field(max_length=255)]


@router.post("/hosts/forget", response={204: None}, summary="Remove a silent host that holds no runs; for staff")
def remove_host(request: HttpRequest, payload: HostName) -> Any:
    forget_host(request.user, payload.name)
    return Status(204, None)
