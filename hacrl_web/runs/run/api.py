"""The API's part for one run: its settings and history, its controls, labels, archive."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Router, Status
from typing_extensions import TypedDict

from hacrl_web.runs.archive import archive, deletion
from hacrl_web.runs.models import Run
from hacrl_web.runs.models.answers import RunRow, run_summary_row
from hacrl_web.runs.models.requests import change_reason, visible_run
from hacrl_web.runs.run.labels import labels_of, set_labels
from hacrl_web.runs.run.results import learned_nothing
from hacrl_web.runs.worker import queue
from hacrl_web.runs.worker.queue import place_in_queue
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.etags import check_version, edit_of, tagged
from hacrl_web.web.schemas import StrictBody

router = Router(tags=["runs"])


class PlacedRun(RunRow):
    """place_in_queue: from 1; null where it does not wait."""

    place_in_queue: int | None


class StatusChangeAnswer(TypedDict):
    from_state: str
    to_state: str
    attempt: int
    reason: str
    at: datetime


class RunAnswer(PlacedRun):
    """spec: the settings, as in docs/settings.md.  origin: of an imported run, who imported it when; else empty.

    network_functions: reward functions that could use the network, so that the run cannot be repeated exactly.
    learned_nothing: the agents for which no rollout had weight for many steps, or in the whole run; else empty.
    """

    notes: str
    origin: dict[str, Any]
    network_functions: list[str]
    learned_nothing: str
    spec: dict[str, Any]
    last_seq: int
    status_changes: list[StatusChangeAnswer]


def detail(run: Run) -> dict[str, Any]:
    """A run with its settings and its history."""
    changes = run.status_changes.values("from_state", "to_state", "attempt", "reason", "at")
    return {
        **run_summary_row(run),
        "place_in_queue": place_in_queue(run),
        "notes": run.notes,
        "origin": run.origin,
        "network_functions": run.network_functions,
        "learned_nothing": learned_nothing(run),
        "spec": run.spec,
        "last_seq": run.last_seq,
        "status_changes": list(changes),
    }


@router.get("/runs/{run_id}", response=RunAnswer, summary="A run with its settings and history")
def get_run(request: HttpRequest, run_id: UUID) -> Any:
    return detail(visible_run(request, run_id))


class Why(StrictBody):
    why: Annotated[str, Field(max_length=200, description="In your words; shown on the run's page.")] = ""


@router.post("/runs/{run_id}/stop", response=RunRow, summary="Stop a run; a second call does nothing")
def stop_run(request: HttpRequest, run_id: UUID) -> Any:
    run = visible_run(request, run_id)
    run.request_stop(change_reason("stopped", request))
    return run_summary_row(run)


@router.post("/runs/{run_id}/pause", response=RunRow, summary="Pause a run: after its step, with a checkpoint")
def pause_run(request: HttpRequest, run_id: UUID, payload: Why | None = None) -> Any:
    """Pause a run; a queued one leaves the queue. A second call, or one after its end, does nothing."""
    run = visible_run(request, run_id)
    run.request_pause(change_reason("paused", request, payload.why if payload else ""))
    return run_summary_row(run)


@router.post(
    "/runs/{run_id}/resume", response=RunRow, summary="Queue a paused run again; it continues from its checkpoint"
)
def resume_run(request: HttpRequest, run_id: UUID) -> Any:
    """Resume a paused run. A second call does nothing. 409 after its end: see /runs/{run_id}/retry."""
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


class Labels(StrictBody):
    """Tags and notes of a run; both are required, and replace the stored ones."""

    tags: list[str]
    notes: str


@router.get("/runs/{run_id}/labels", response=Labels, summary="Tags and notes of a run, with their ETag")
def get_labels(request: HttpRequest, run_id: UUID) -> Any:
    return tagged(request, labels_of(visible_run(request, run_id)))


@router.put("/runs/{run_id}/labels", response=Labels, summary="Change tags and notes; their ETag goes into If-Match")
def change_labels(request: HttpRequest, run_id: UUID, payload: Labels) -> Any:
    with edit_of(Run, run_id):
        run = visible_run(request, run_id)
        check_version(request, labels_of(run))
        set_labels(run, payload.tags, payload.notes)
    return tagged(request, labels_of(run))


@router.post("/runs/{run_id}/archive", response=RunRow, summary="Archive a run: lists leave it out, nothing is lost")
def archive_run(request: HttpRequest, run_id: UUID) -> Any:
    """Archive a run that has ended; 409 before. A second call does nothing."""
    run = visible_run(request, run_id)
    archive.archive(request.user, run)
    return run_summary_row(run)


@router.post("/runs/{run_id}/unarchive", response=RunRow, summary="Take an archived run back into the lists")
def unarchive_run(request: HttpRequest, run_id: UUID) -> Any:
    run = visible_run(request, run_id)
    archive.unarchive(request.user, run)
    return run_summary_row(run)


@router.post("/runs/{run_id}/delete", response={204: None}, summary="Delete a run with all it has recorded")
def remove_run(request: HttpRequest, run_id: UUID) -> Any:
    """Delete a run with its rows, logs and checkpoints for good; 409 before its end. Its size: /runs/{run_id}/disk."""
    deletion.delete_run(request.user, visible_run(request, run_id))
    return Status(204, None)
