"""The API's part for /runs: list and launch, requests, drafts, estimates, retries, presets."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Body, Field, Query, Router, Status
from typing_extensions import TypedDict

from hacrl_web.accounts.tokens.idempotency import idempotent
from hacrl_web.registry.models import AgentGroup
from hacrl_web.runs.launch.again import request_of, retry
from hacrl_web.runs.launch.cost import Cost, estimate
from hacrl_web.runs.launch.launch import change_draft, launch, queue_draft
from hacrl_web.runs.launch.presets import memory_of_presets, presets, sections_of
from hacrl_web.runs.models import Run, RunQuerySet, State
from hacrl_web.runs.models.answers import RunRow, run_summary_row
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.run.api import RunAnswer, detail
from hacrl_web.runs.run.labels import MAX_TAG
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.etags import check_version, edit_of, tagged
from hacrl_web.web.page_query import MAX_ID
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

Payload = Annotated[dict[str, Any], Body()]
router = Router(tags=["runs"])


class Sections(TypedDict, total=False):
    """The sections of RunSpec that a request may have, each with its settings by name."""

    algorithm: dict[str, Any]
    rewards: dict[str, Any]
    rollout: dict[str, Any]
    training: dict[str, Any]
    evaluation: dict[str, Any]
    checkpoint: dict[str, Any]
    compute: dict[str, Any]
    telemetry: dict[str, Any]
    confirm: list[str]
    agents: dict[str, dict[str, Any]]


class RequestAnswer(Sections, total=False):
    """The body of POST /runs that would launch the run again."""

    name: str
    group: int | None
    benchmark: int | None
    seed: int
    cloned_from: str
    draft: bool
    data: dict[str, Any]


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
    return listing(runs.named(q).defer("spec"), query, run_summary_row)


@router.post("/runs/estimate", response=Cost, summary="What a run would cost; nothing is launched")
def estimate_run(request: HttpRequest, payload: Payload) -> Any:
    """The body is that of POST /runs. `device_seconds` is null where no run was measured yet, see `basis`."""
    return estimate(request.user, payload, Run)


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


class PresetMemoryAnswer(TypedDict):
    """text: the estimate on the machine for which the preset is made, or why it does not fit there."""

    text: str
    fits: bool


class PresetAnswer(TypedDict):
    """settings: sections as in the body of POST /runs.  confirm: codes of the cautions that it confirms.

    memory: null without a group, where the size of one of its models is unknown, and for presets of no machine.
    """

    name: str
    label: str
    settings: dict[str, dict[str, Any]]
    confirm: list[str]
    memory: PresetMemoryAnswer | None


class PresetsAnswer(TypedDict):
    items: list[PresetAnswer]


@router.get("/presets", response=PresetsAnswer, summary="Presets, and the memory that each needs with a group")
def list_presets(request: HttpRequest, group: Annotated[int | None, Query(ge=0, le=MAX_ID)] = None) -> Any:
    """`name` goes into `preset` of POST /runs or /sweeps: settings that the body has itself take precedence."""
    agents = []
    if group is not None:
        row = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=group)
        agents = list(row.agents.select_related("model"))
    memory = {one.name: {"text": one.text, "fits": one.fits} for one in memory_of_presets(agents)}
    return {"items": [_answer(row) | {"memory": memory.get(row["name"])} for row in presets()]}


def _answer(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": row["name"],
        "label": row["label"],
        "settings": sections_of(row["values"]),
        "confirm": row["codes"],
    }
