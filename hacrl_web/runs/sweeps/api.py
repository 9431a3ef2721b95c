"""The API's part for sweeps: estimate, launch, read, stop, pause, resume, retry, add seeds, rename, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Status
from typing_extensions import TypedDict

from hacrl_web.accounts.tokens.idempotency import idempotent
from hacrl_web.runs.archive import deletion
from hacrl_web.runs.launch.api import Confirmed, Payload, Sections
from hacrl_web.runs.launch.cost import Cost, estimate
from hacrl_web.runs.launch.launch import change_draft, launch_sweep, queue_draft
from hacrl_web.runs.models import Run, Sweep
from hacrl_web.runs.models.answers import RunRow, run_summary_row
from hacrl_web.runs.models.requests import change_reason, visible_sweep
from hacrl_web.runs.run.api import Why
from hacrl_web.runs.sweeps import sweeps
from hacrl_web.runs.sweeps.search_view import search_answer
from hacrl_web.runs.sweeps.state import state_of
from hacrl_web.runs.variants.grid import MAX_SWEEP_RUNS
from hacrl_web.web.etags import check_version, edit_of, tagged
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

router = Router(tags=["sweeps"])


class SweepRequest(Sections, total=False):
    """The body of POST /sweeps that would launch the sweep again, with the settings that it names."""

    name: str
    group: int
    benchmark: int
    algorithms: list[str]
    ablations: list[str]
    seeds: list[int]
    grid: dict[str, list[Any]]
    search: dict[str, Any]


class SweepHead(TypedDict):
    id: int
    name: str
    url: str
    created_at: datetime
    is_draft: bool


class SweepRow(SweepHead):
    """request: the body of POST /sweeps."""

    request: dict[str, Any]


class SweepProgress(TypedDict):
    runs: int
    counts: dict[str, int]
    steps: int
    total_steps: int
    eta_s: float | None
    is_finished: bool


class SweepChange(SweepHead):
    """changed: ids of the runs that the act changed."""

    changed: list[str]
    progress: SweepProgress


class VariantAnswer(TypedDict):
    """runs: by seed; null where the run was deleted."""

    label: str
    runs: list[str | None]


class TrialAnswer(TypedDict):
    """number: from 0.  value: the objective, null without one.  run: its id; null where it was refused or deleted."""

    number: int
    state: str
    parameters: dict[str, Any]
    value: float | None
    pruned_step: int | None
    reason: str
    run: str | None


class ImportanceShare(TypedDict):
    """share: of 1 over all settings.  low, high: nine in ten resamplings of the trials lie between them."""

    share: float
    low: float
    high: float


class Importance(TypedDict):
    """What separates the best quarter of the completed trials from the others (PED-ANOVA).

    trials: completed ones.  shares: by setting; none for fewer than 10 trials, or where all reached the same.
    """

    trials: int
    shares: dict[str, ImportanceShare]


class SweepSearchAnswer(TypedDict):
    """state: searching, paused, finished or stopped.  best: number of the best trial.  counts: trials by state.

    importance: null before the dispatcher has counted.
    """

    state: str
    reason: str
    best: int | None
    counts: dict[str, int]
    importance: Importance | None
    trials: list[TrialAnswer]


class SweepAnswer(SweepRow):
    """search: null for a sweep of a grid."""

    search: SweepSearchAnswer | None
    is_finished: bool
    progress: SweepProgress
    seeds: list[int]
    variants: list[VariantAnswer]
    runs: list[RunRow]


def body_of(sweep: Sweep) -> dict[str, Any]:
    """A sweep with its runs, oldest first, and the run that counts for each variant and seed."""
    state = state_of(sweep)
    progress = state.progress()
    return {
        **_head(sweep),
        "request": sweep.request,
        "search": search_answer(sweep),
        "is_finished": progress["is_finished"],
        "progress": progress,
        "seeds": state.seeds,
        "variants": [
            {"label": line.label, "runs": [str(run.pk) if run else None for run in line.cells]} for line in state.lines
        ],
        "runs": [run_summary_row(run) for run in state.runs],
    }


def _head(sweep: Sweep) -> dict[str, Any]:
    return {
        "id": sweep.pk,
        "name": sweep.name,
        "url": sweep.get_absolute_url(),
        "created_at": sweep.created_at,
        "is_draft": sweep.is_draft,
    }


@router.post("/sweeps", response={201: SweepAnswer}, summary="Launch one run for each variant and seed")
@idempotent
def create_sweep(request: HttpRequest, payload: Payload) -> Any:
    """Launch a sweep by the body of POST /runs, with lists `algorithms` and `seeds` in place of one of each.

    Optional: `ablations` of HACPO, and a `grid` such as {"alpha": [1, 3], "training.learning_rate": [1e-6, 3e-6]}
    over settings of algorithms, by their name, those of other sections that act on results, `agents.*.SETTING` or
    `agents.NAME.SETTING`, and `rewards.terms.NAME.weight`; or in its place a `search`, with the method random or optuna
    and `parameters` such as {"training.learning_rate": "1e-6..1e-4 log"}: its trials follow one another, and `search`
    of the answer shows them. With `"draft": true` it is saved without runs, and its cautions are confirmed when it is
    queued.
    """
    return Status(201, body_of(launch_sweep(request.user, payload)))


@router.post("/sweeps/estimate", response=Cost, summary="What a sweep would cost; nothing is launched")
def estimate_sweep(request: HttpRequest, payload: Payload) -> Any:
    """The body is that of POST /sweeps. `device_seconds` is null where no run was measured yet, see `basis`.

    `memory` is the peak of one run in words, for the host with most room; empty where models or hosts are not known.
    """
    return estimate(request.user, payload, Sweep)


@router.get("/sweeps", response=PageOf[SweepRow], summary="List sweeps, newest first")
def list_sweeps(request: HttpRequest, query: Query[ListQuery]) -> Any:
    sweeps = Sweep.objects.visible_to(request.user)
    return listing(sweeps, query, lambda sweep: _head(sweep) | {"request": sweep.request})


@router.get("/sweeps/{int:sweep_id}", response=SweepAnswer, summary="A sweep and its runs")
def get_sweep(request: HttpRequest, sweep_id: int) -> Any:
    return body_of(visible_sweep(request, sweep_id))


@router.get("/sweeps/{int:sweep_id}/progress", response=SweepProgress, summary="How far a sweep is")
def get_progress(request: HttpRequest, sweep_id: int) -> Any:
    return state_of(visible_sweep(request, sweep_id)).progress()


@router.get(
    "/sweeps/{int:sweep_id}/request",
    response=SweepRequest,
    summary="The request that would launch a sweep again, with its ETag",
)
def get_sweep_request(request: HttpRequest, sweep_id: int) -> Any:
    return tagged(request, visible_sweep(request, sweep_id).request)


@router.put(
    "/sweeps/{int:sweep_id}/request",
    response=SweepRequest,
    summary="Other settings for a draft; the ETag goes into If-Match",
)
def edit_sweep_draft(request: HttpRequest, sweep_id: int, payload: Payload) -> Any:
    """The body of POST /sweeps replaces all its settings. 409 if it is no longer a draft."""
    with edit_of(Sweep, sweep_id):
        sweep = visible_sweep(request, sweep_id)
        check_version(request, sweep.request)
        changed = change_draft(request.user, sweep, payload)
    return tagged(request, changed.request)


@router.post("/sweeps/{int:sweep_id}/queue-draft", response={201: SweepAnswer}, summary="Queue a draft")
@idempotent
def queue_draft_of_sweep(request: HttpRequest, sweep_id: int, payload: Confirmed | None = None) -> Any:
    """Check the settings of a draft again, and queue its runs. 409 if it is no longer a draft."""
    codes = payload.confirm if payload else []
    return Status(201, body_of(queue_draft(request.user, visible_sweep(request, sweep_id), codes)))


def _changed(sweep: Sweep, runs: list[Run]) -> dict[str, Any]:
    """The answer of an act that changed these runs."""
    return {**_head(sweep), "changed": [str(run.pk) for run in runs], "progress": state_of(sweep).progress()}


@router.post("/sweeps/{int:sweep_id}/stop", response=SweepChange, summary="Stop every run; a second call does nothing")
def stop_sweep(request: HttpRequest, sweep_id: int) -> Any:
    sweep = visible_sweep(request, sweep_id)
    return _changed(sweep, sweeps.stop_all(sweep, change_reason("stopped with its sweep", request)))


@router.post("/sweeps/{int:sweep_id}/pause", response=SweepChange, summary="Pause every run")
def pause_sweep(request: HttpRequest, sweep_id: int, payload: Why | None = None) -> Any:
    sweep = visible_sweep(request, sweep_id)
    return _changed(
        sweep, sweeps.pause_all(sweep, change_reason("paused with its sweep", request, payload.why if payload else ""))
    )


@router.post("/sweeps/{int:sweep_id}/resume", response=SweepChange, summary="Queue every paused run again")
def resume_sweep(request: HttpRequest, sweep_id: int) -> Any:
    sweep = visible_sweep(request, sweep_id)
    return _changed(sweep, sweeps.resume_all(sweep, change_reason("resumed with its sweep", request)))


class RetryOrder(StrictBody):
    """`state`: which of the ended runs are replaced."""

    state: Literal["failed", "stopped"] = "failed"


@router.post("/sweeps/{int:sweep_id}/retry", response=SweepChange, summary="A new run in place of each that has failed")
def retry_sweep(request: HttpRequest, sweep_id: int, payload: RetryOrder | None = None) -> Any:
    """Retry failed runs from step 0 with the same settings and seeds, each once."""
    sweep = visible_sweep(request, sweep_id)
    return _changed(sweep, sweeps.retry_all(request.user, sweep, (payload or RetryOrder()).state))


class SeedsOrder(StrictBody):
    """Seeds that the sweep does not have yet."""

    seeds: Annotated[list[int], Field(max_length=MAX_SWEEP_RUNS)] = []


@router.post("/sweeps/{int:sweep_id}/seeds", response=SweepChange, summary="Every variant on further seeds")
def add_seeds(request: HttpRequest, sweep_id: int, payload: SeedsOrder) -> Any:
    sweep = visible_sweep(request, sweep_id)
    return _changed(sweep, sweeps.add_seeds(request.user, sweep, payload.seeds))


class NameOrder(StrictBody):
    """The new name."""

    name: str = ""


@router.post("/sweeps/{int:sweep_id}/rename", response=SweepHead, summary="Rename a sweep; its runs keep their names")
def rename_sweep(request: HttpRequest, sweep_id: int, payload: NameOrder) -> Any:
    sweep = visible_sweep(request, sweep_id)
    sweeps.rename_sweep_to(sweep, payload.name)
    return _head(sweep)


@router.post("/sweeps/{int:sweep_id}/delete", response={204: None}, summary="Delete a sweep with all its runs")
def remove_sweep(request: HttpRequest, sweep_id: int) -> Any:
    """Delete a sweep with its runs and all that they recorded. 409, and nothing is lost, while a run has not ended."""
    deletion.delete_sweep(request.user, visible_sweep(request, sweep_id))
    return Status(204, None)
