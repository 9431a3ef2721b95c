"""The API's part for runs and their settings: launch, list, retry, drafts, labels, archive, delete."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Body, Field, Query, Router, Status

from hacrl_web.accounts.roles.projects import require_delete
from hacrl_web.accounts.tokens.idempotency import idempotent
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.api.schemas import RequestAnswer, RunAnswer, RunRow, SearchAnswer
from hacrl_web.runs.archive import archive, deletion
from hacrl_web.runs.labels import MAX_TAG, labels_of, set_labels
from hacrl_web.runs.launch.again import request_of, retry
from hacrl_web.runs.launch.cost import Cost, estimate
from hacrl_web.runs.launch.launch import change_draft, launch, queue_draft
from hacrl_web.runs.launch.queue import place_in_queue
from hacrl_web.runs.models import Run, RunQuerySet, State
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.search import rows_named
from hacrl_web.runs.workspace.query import named
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.etags import check_version, edit_of, tagged
from hacrl_web.web.page_query import MAX_ID
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

Payload = Annotated[dict[str, Any], Body()]
router = Router(tags=["runs"])


def run_summary_row(run: Run) -> dict[str, Any]:
    """A run as lists show it."""
    row = {
        "id": str(run.pk),
        "url": run.get_absolute_url(),
        "retry_of": str(run.retry_of_id) if run.retry_of_id else None,
        "cloned_from": str(run.cloned_from_id) if run.cloned_from_id else None,
        "sweep": run.sweep_id,
        "group": run.group_id,
        "benchmark": run.benchmark_id,
        "tags": run.tag_list,
    }
    return row | {name: getattr(run, name) for name in RunRow.__annotations__ if name not in row}


def detail(run: Run) -> dict[str, Any]:
    """A run with its settings and its history."""
    changes = run.status_changes.values("from_state", "to_state", "attempt", "reason", "at")
    return {
        **run_summary_row(run),
        "place_in_queue": place_in_queue(run),
        "notes": run.notes,
        "origin": run.origin,
        "network_functions": run.network_functions,
        "spec": run.spec,
        "last_seq": run.last_seq,
        "status_changes": list(changes),
    }


@router.post("/runs", response={201: RunAnswer}, summary="Launch a run")
@idempotent
def create_run(request: HttpRequest, payload: Payload) -> Any:
    """Name, group, benchmark, algorithm, seed, any RunSpec section, and the cautions to confirm.

    `preset`: the name of a preset (GET /presets), which gives the settings that the body leaves out.
    With `"draft": true` it is saved and not queued, and its cautions are confirmed when it is.
    """
    return Status(201, detail(launch(request.user, payload)))


@router.get("/runs", response=PageOf[RunRow], summary="List runs, newest first")
def list_runs(
    request: HttpRequest,
    query: Query[ListQuery],
    state: str | None = None,
    sweep: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
    tag: Annotated[str, Query(max_length=MAX_TAG)] = "",
    archived: bool | None = None,
    q: Annotated[str, Query(max_length=200)] = "",
) -> Any:
    """`q`: a part of the name of the run or its sweep.

    `archived`: true for archived runs alone, false to leave them out; both without it.
    """
    runs: RunQuerySet = Run.objects.visible_to(request.user)
    if state is not None:
        if state not in State.values:
            raise FieldErrors.single("invalid", f"Must be one of {', '.join(State.values)}.", "state")
        runs = runs.filter(state=state)
    if sweep is not None:
        runs = runs.filter(sweep_id=sweep)
    if tag:
        runs = runs.tagged(tag.replace("\x00", ""))
    if archived is not None:
        runs = runs.filter(archived_at__isnull=not archived)
    return listing(named(runs, q).defer("spec"), query, run_summary_row)


# Before /runs/{run_id}, which would match it.
@router.post("/runs/estimate", response=Cost, summary="What a run would cost; nothing is launched")
def estimate_run(request: HttpRequest, payload: Payload) -> Any:
    """The body is that of POST /runs. `device_seconds` is null where no run was measured yet, see `basis`."""
    return estimate(request.user, payload, Run)


@router.get("/runs/{run_id}", response=RunAnswer, summary="A run with its settings and history")
def get_run(request: HttpRequest, run_id: UUID) -> Any:
    return detail(visible_run(request, run_id))


@router.post("/runs/{run_id}/retry", response={201: RunAnswer}, summary="A new run of the same settings, from step 0")
@idempotent
def retry_run(request: HttpRequest, run_id: UUID) -> Any:
    return Status(201, detail(retry(request.user, visible_run(request, run_id))))


@router.get(
    "/runs/{run_id}/request", response=RequestAnswer, summary="The request that would launch a run again, with its ETag"
)
def get_request(request: HttpRequest, run_id: UUID) -> Any:
    """Change what you like and send it to POST /runs: the new run remembers which one it is a clone of."""
    return tagged(request, request_of(request.user, visible_run(request, run_id)))


@router.put(
    "/runs/{run_id}/request", response=RequestAnswer, summary="Other settings for a draft; the ETag goes into If-Match"
)
def edit_draft(request: HttpRequest, run_id: UUID, payload: Payload) -> Any:
    """The body of a launch replaces all its settings. 409 if it is no longer a draft."""
    with edit_of(Run, run_id):
        run = visible_run(request, run_id)
        check_version(request, request_of(request.user, run))
        changed = change_draft(request.user, run, payload)
    return tagged(request, request_of(request.user, changed))


class Confirmed(StrictBody):
    """Codes of the cautions that are confirmed."""

    confirm: list[Annotated[str, Field(max_length=80)]] = []


@router.post("/runs/{run_id}/queue-draft", response={201: RunAnswer}, summary="Queue a draft")
@idempotent
def queue_a_draft(request: HttpRequest, run_id: UUID, payload: Confirmed | None = None) -> Any:
    """Its settings are checked again. 409 if it is no longer a draft."""
    codes = payload.confirm if payload else []
    return Status(201, detail(queue_draft(request.user, visible_run(request, run_id), codes)))


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
    """409 before its end. A second call does nothing."""
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
    """Rows, logs and checkpoints are gone for good; 409 before its end. What it takes: /runs/{run_id}/disk."""
    deletion.delete_run(request.user, visible_run(request, run_id))
    return Status(204, None)


@router.post("/benchmarks/{int:pk}/delete", response={204: None}, summary="Delete a benchmark")
def remove_benchmark(request: HttpRequest, pk: int) -> Any:
    """Its questions are gone for good; refused while runs that have not ended need it."""
    benchmark = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)
    require_delete(request.user, benchmark)
    archive.delete_benchmark(benchmark)
    return Status(204, None)


@router.get("/find", response=SearchAnswer, summary="Find runs, sweeps, models, groups, benchmarks by name")
def find(request: HttpRequest, q: Annotated[str, Query(max_length=200)] = "") -> Any:
    return {"found": rows_named(request.user, q)}
