"""The runs' part of the REST API: launch, look, pause, stop, reorder, drain. It parses and answers.

launch.py, queue.py and the models decide.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.db import transaction
from django.db.models import Max
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Body, Field, Query, Router, Status

from hacrl_web.accounts.projects import require_delete
from hacrl_web.accounts.tokens.idempotency import idempotent
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.api.answers import (
    ContributionsAnswer,
    HostAnswer,
    LabelsAnswer,
    PlacedRun,
    RequestAnswer,
    RunAnswer,
    RunRow,
    RunSeriesAnswer,
)
from hacrl_web.runs.archive import archive
from hacrl_web.runs.archive.delete_benchmark import delete_benchmark
from hacrl_web.runs.labels import MAX_TAG, labels_of, set_labels
from hacrl_web.runs.launch import queue
from hacrl_web.runs.launch.drafts import change_draft, queue_draft
from hacrl_web.runs.launch.launch import launch, retry
from hacrl_web.runs.launch.plan import request_of
from hacrl_web.runs.models import Contribution, Drain, Host, Run, RunQuerySet, State
from hacrl_web.runs.pages.controls import who
from hacrl_web.runs.pubsub import publish_update
from hacrl_web.runs.telemetry.metric_series import read_series
from hacrl_web.runs.worker.hosts import set_drain
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.etags import check_version, edit_of, tagged
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

MAX_CONTRIBUTIONS = 5000
MAX_ID = 2**63 - 1
CONTRIBUTION_FIELDS = [f.name for f in Contribution._meta.concrete_fields if f.name not in ("id", "run", "seq")]
NO_NAMES: list[str] = []
Payload = Annotated[dict[str, Any], Body()]
Names = Annotated[list[str], Query()]
router = Router(tags=["runs"])


class ContributionQuery(ListQuery):
    """They are many and small."""

    limit: int = Query(1000, ge=1, le=MAX_CONTRIBUTIONS)


def run_summary_row(run: Run) -> dict[str, Any]:
    """A run as lists show it."""
    return {
        "id": str(run.pk),
        "name": run.name,
        "url": run.get_absolute_url(),
        "algorithm": run.algorithm,
        "variant": run.variant,
        "seed": run.seed,
        "state": run.state,
        "desired_state": run.desired_state,
        "reason": run.reason,
        "attempt": run.attempt,
        "interruptions": run.interruptions,
        "priority": run.priority,
        "retry_of": str(run.retry_of_id) if run.retry_of_id else None,
        "cloned_from": str(run.cloned_from_id) if run.cloned_from_id else None,
        "start_step": run.start_step,
        "step": run.step,
        "total_steps": run.total_steps,
        "progress": run.progress,
        "sweep": run.sweep_id,
        "group": run.group_id,
        "benchmark": run.benchmark_id,
        "worker_host": run.worker_host,
        "tags": run.tag_list,
        "archived_at": run.archived_at,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
    }


def detail(run: Run) -> dict[str, Any]:
    """A run with its settings and its history."""
    changes = run.status_changes.values("from_state", "to_state", "attempt", "reason", "at")
    place = {"place_in_queue": queue.place_in_queue(run)}
    return {
        **run_summary_row(run),
        **place,
        "notes": run.notes,
        "spec": run.spec,
        "last_seq": run.last_seq,
        "status_changes": list(changes),
    }


def _visible_run(request: HttpRequest, run_id: UUID) -> Run:
    return get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)


@router.post("/runs", response={201: RunAnswer}, summary="Launch a run")
@idempotent
def create_run(request: HttpRequest, payload: Payload) -> Any:
    """Name, group, benchmark, algorithm, seed, any RunSpec section, and the cautions to confirm.

    With `"draft": true` it is kept and not queued, and its cautions are confirmed when it is.
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
) -> Any:
    """`archived`: true for archived runs alone, false to leave them out; both without it."""
    runs: RunQuerySet = Run.objects.visible_to(request.user)
    if state is not None:
        if state not in State.values:
            raise FieldErrors([FieldError("invalid", f"Must be one of {', '.join(State.values)}.", "state")])
        runs = runs.filter(state=state)
    if sweep is not None:
        runs = runs.filter(sweep_id=sweep)
    if tag:
        runs = runs.tagged(tag.replace("\x00", ""))
    if archived is not None:
        runs = runs.filter(archived_at__isnull=not archived)
    return listing(runs.defer("spec"), query, run_summary_row)


@router.get("/runs/{run_id}", response=RunAnswer, summary="A run with its settings and history")
def get_run(request: HttpRequest, run_id: UUID) -> Any:
    return detail(_visible_run(request, run_id))


@router.post("/runs/{run_id}/stop", response=RunRow, summary="Stop a run; asking twice, or after its end, does nothing")
def stop_run(request: HttpRequest, run_id: UUID) -> Any:
    run = _visible_run(request, run_id)
    run.request_stop(who("stopped", request))
    publish_update(run.pk)
    return run_summary_row(run)


class Why(StrictBody):
    """Why, in the user's words; shown on the run's page."""

    why: Annotated[str, Field(max_length=200)] = ""


@router.post("/runs/{run_id}/pause", response=RunRow, summary="Pause a run: after its step, with a checkpoint")
def pause_run(request: HttpRequest, run_id: UUID, payload: Why | None = None) -> Any:
    """A queued run is held out of the queue. Asking twice, or after its end, does nothing."""
    run = _visible_run(request, run_id)
    run.request_pause(who("paused", request, payload.why if payload else ""))
    publish_update(run.pk)
    return run_summary_row(run)


@router.post(
    "/runs/{run_id}/resume", response=RunRow, summary="Queue a paused run again; it goes on from its checkpoint"
)
def resume_run(request: HttpRequest, run_id: UUID) -> Any:
    """Asking twice does nothing. 409 after its end, for then nothing goes on: see /runs/{run_id}/retry."""
    run = _visible_run(request, run_id)
    run.request_resume(who("resumed", request))
    if run.is_terminal:
        message = f"The run has ended ({run.state}) and cannot go on; retry it, which starts a new one from step 0."
        raise FieldErrors([FieldError("ended", message, None)], 409)
    publish_update(run.pk)
    return run_summary_row(run)


@router.post("/runs/{run_id}/retry", response={201: RunAnswer}, summary="A new run of the same settings, from step 0")
@idempotent
def retry_run(request: HttpRequest, run_id: UUID) -> Any:
    return Status(201, detail(retry(request.user, _visible_run(request, run_id))))


@router.get(
    "/runs/{run_id}/request", response=RequestAnswer, summary="The request that would launch a run again, with its ETag"
)
def get_request(request: HttpRequest, run_id: UUID) -> Any:
    """Change what you like and send it to POST /runs: the new run remembers which one it is a clone of."""
    return tagged(request, request_of(request.user, _visible_run(request, run_id)))


@router.put(
    "/runs/{run_id}/request", response=RequestAnswer, summary="Other settings for a draft; the ETag goes into If-Match"
)
def edit_draft(request: HttpRequest, run_id: UUID, payload: Payload) -> Any:
    """The body of a launch takes the place of all its settings. 409 where it is no draft any more."""
    with edit_of(Run, run_id):
        run = _visible_run(request, run_id)
        check_version(request, request_of(request.user, run))
        changed = change_draft(request.user, run, payload)
    return tagged(request, request_of(request.user, changed))


class Confirmed(StrictBody):
    """Codes of the cautions that are meant."""

    confirm: list[Annotated[str, Field(max_length=80)]] = []


@router.post("/runs/{run_id}/queue-draft", response={201: RunAnswer}, summary="Queue a draft")
@idempotent
def queue_a_draft(request: HttpRequest, run_id: UUID, payload: Confirmed | None = None) -> Any:
    """What may have changed since it was saved is checked again. 409 where it is no draft any more."""
    codes = payload.confirm if payload else []
    return Status(201, detail(queue_draft(request.user, _visible_run(request, run_id), codes)))


class Place(StrictBody):
    """`place`: 1 is the first among the user's own waiting runs.  `priority`: higher starts first."""

    place: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    priority: Annotated[int, Field(ge=-queue.MAX_PRIORITY, le=queue.MAX_PRIORITY)] | None = None


@router.post("/runs/{run_id}/queue", response=PlacedRun, summary="Change a waiting run's place or priority")
def queue_run(request: HttpRequest, run_id: UUID, payload: Place) -> Any:
    run = _visible_run(request, run_id)
    with transaction.atomic():  # a refused place leaves the priority as it was
        if payload.priority is not None:
            queue.set_priority(request.user, run, payload.priority)
        if payload.place is not None:
            queue.move_run(request.user, run, payload.place)
    return {**run_summary_row(run), "place_in_queue": queue.place_in_queue(run)}


class Labels(StrictBody):
    """What people write on a run; both are needed, and take the place of what was there."""

    tags: list[str]
    notes: str


@router.get("/runs/{run_id}/labels", response=LabelsAnswer, summary="Tags and notes of a run, with their ETag")
def get_labels(request: HttpRequest, run_id: UUID) -> Any:
    return tagged(request, labels_of(_visible_run(request, run_id)))


@router.put(
    "/runs/{run_id}/labels", response=LabelsAnswer, summary="Change tags and notes; their ETag goes into If-Match"
)
def change_labels(request: HttpRequest, run_id: UUID, payload: Labels) -> Any:
    with edit_of(Run, run_id):
        run = _visible_run(request, run_id)
        check_version(request, labels_of(run))
        set_labels(run, payload.tags, payload.notes)
    return tagged(request, labels_of(run))


@router.post("/runs/{run_id}/archive", response=RunRow, summary="Archive a run: lists leave it out, nothing is lost")
def archive_run(request: HttpRequest, run_id: UUID) -> Any:
    """409 before its end. Asking twice does nothing."""
    run = _visible_run(request, run_id)
    archive.archive(request.user, run)
    return run_summary_row(run)


@router.post("/runs/{run_id}/unarchive", response=RunRow, summary="Take an archived run back into the lists")
def unarchive_run(request: HttpRequest, run_id: UUID) -> Any:
    run = _visible_run(request, run_id)
    archive.unarchive(request.user, run)
    return run_summary_row(run)


@router.post("/runs/{run_id}/delete", response={204: None}, summary="Delete a run with all it has recorded")
def remove_run(request: HttpRequest, run_id: UUID) -> Any:
    """Rows, logs and checkpoints are gone for good; 409 before its end. What it takes: /runs/{run_id}/disk."""
    archive.delete_run(request.user, _visible_run(request, run_id))
    return Status(204, None)


def host_summary(host: Host) -> dict[str, Any]:
    names = ("name", "last_seen", "clock_offset_s", "schema", "versions", "devices", "drain", "drain_reason")
    return {name: getattr(host, name) for name in names}


@router.get("/hosts", response=PageOf[HostAnswer], summary="Hosts that have been heard of")
def list_hosts(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(Host.objects.order_by("name"), query, host_summary)


class DrainOrder(Why):
    """`drain`: no (it takes runs), finish (no new ones), now (those under way are saved and requeued)."""

    name: Annotated[str, Field(max_length=255)]
    drain: Literal["no", "finish", "now"]


@router.post("/hosts/drain", response=HostAnswer, summary="Let a host take no more runs, or take them again; for staff")
def drain_host(request: HttpRequest, payload: DrainOrder) -> Any:
    if not request.user.is_staff:
        raise FieldErrors([FieldError("forbidden", "Only staff may drain a host.", None)], 403)
    host = Host.objects.filter(name=payload.name.replace("\x00", "")).first()
    if host is None:
        raise FieldErrors([FieldError("not_found", "There is no such host.", "name")], 404)
    set_drain(host, Drain(payload.drain), who("drained", request, payload.why))
    return host_summary(host)


@router.get("/runs/{run_id}/series", response=RunSeriesAnswer, summary="The plotted numbers, as columns")
def get_series(request: HttpRequest, run_id: UUID, metric: Names = NO_NAMES, agent: Names = NO_NAMES) -> Any:
    """Choose with ?metric=reward/mean&metric=capability&agent=A; without a choice, everything."""
    run = _visible_run(request, run_id)
    series = [
        {
            "metric": one.metric,
            "agent": one.agent,
            "source": one.source,
            "steps": one.steps.tolist(),
            "values": one.numbers(),
        }
        for one in read_series(run, set(metric), set(agent))
    ]
    return {"run": str(run.pk), "last_seq": run.last_seq, "series": series}


@router.get(
    "/runs/{run_id}/contributions",
    response=ContributionsAnswer,
    summary="What each rollout of a step taught each learner",
)
def get_contributions(
    request: HttpRequest,
    run_id: UUID,
    query: Query[ContributionQuery],
    step: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
) -> Any:
    """One object for each rollout and learner, with the fields of docs/metrics.md; the step's latest attempt.

    Without a step: the last one whose contributions were recorded (telemetry.rollout_interval).
    """
    run = _visible_run(request, run_id)
    if step is None:
        step = run.contributions.aggregate(Max("step"))["step__max"] or 0
    of_step = run.contributions.filter(step=step)
    rows = of_step.filter(attempt=of_step.aggregate(Max("attempt"))["attempt__max"] or 0).order_by("seq")
    return {"run": str(run.pk), "step": step, **listing(rows.values("seq", *CONTRIBUTION_FIELDS), query)}


@router.post("/benchmarks/{int:pk}/delete", response={204: None}, summary="Delete a benchmark")
def remove_benchmark(request: HttpRequest, pk: int) -> Any:
    """Its questions are gone for good; refused while runs that have not ended need it."""
    benchmark = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)
    require_delete(request.user, benchmark)
    delete_benchmark(benchmark)
    return Status(204, None)
