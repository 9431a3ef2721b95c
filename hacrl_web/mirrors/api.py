"""The REST API's part for mirrors of a project, and of a run."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Router, Schema, Status
from typing_extensions import TypedDict

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.roles.projects import project_for
from hacrl_web.mirrors.mirrors import (
    RunMirrorState,
    change_mirror,
    choose,
    create_mirror,
    delete_mirror,
    mirror_of,
    run_mirror_states,
)
from hacrl_web.mirrors.models import Mirror
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.web.schemas import StrictBody

router = Router(tags=["mirrors"])


class MirrorState(Schema):
    """A mirror as its members see it.

    takes_secret: a key can be stored.  has_secret: one is; it is never shown.  folder: of its files.

    rollouts: of each agent, with their texts, at the multiples of rollout_interval steps; 0: none are sent.
    """

    id: int
    name: str
    kind: str
    label: str
    options: dict[str, str]
    takes_secret: bool
    has_secret: bool
    sends: str
    rollouts: int
    rollout_interval: int
    is_enabled: bool
    folder: str
    num_sent: int
    num_failing: int
    problem: str


class MirrorStates(TypedDict):
    items: list[MirrorState]


class RunMirrorStates(TypedDict):
    items: list[RunMirrorState]


class MirrorChange(StrictBody):
    """What is left out stays as it is."""

    options: dict[str, Any] | None = None
    secret: str = ""
    sends: Literal["new", "chosen"] | None = None
    rollouts: int | None = None
    rollout_interval: int | None = None
    is_enabled: bool | None = None


class MirrorIn(StrictBody):
    """options: texts by name, see docs/mirrors.md.

    secret: a key or password; it is stored encrypted and never sent back.
    rollouts: of each agent, 0 to 20, sent at the multiples of rollout_interval steps. Above 0, questions and answers
    leave this installation.
    """

    kind: str = Field(description="tensorboard, mlflow, wandb or trackio.")
    name: str = Field("", description="Its name; the kind's if it is left out.")
    options: dict[str, Any] = {}
    secret: str = ""
    sends: Literal["new", "chosen"] = Field("new", description="new: every run from now on; chosen: chosen runs.")
    rollouts: int = Field(0, description="Of each agent, 0 to 20: their texts then leave the installation.")
    rollout_interval: int = Field(1, description="Steps between those whose rollouts are sent.")


class ChoiceIn(StrictBody):
    choice: Literal["default", "on", "off"] = Field(description="default (as the mirror says), on or off.")


@router.get("/projects/{int:project_id}/mirrors", response=MirrorStates, summary="The mirrors of a project")
def list_mirrors(request: HttpRequest, project_id: int) -> Any:
    return {"items": list(Mirror.objects.filter(project=project_for(request, project_id, Role.VIEWER)))}


@router.post("/projects/{int:project_id}/mirrors", response={201: MirrorState}, summary="Add a mirror (admins)")
def add_mirror(request: HttpRequest, project_id: int, payload: MirrorIn) -> Any:
    return Status(201, create_mirror(request.user, project_for(request, project_id, Role.ADMIN), payload.dict()))


@router.put(
    "/projects/{int:project_id}/mirrors/{int:mirror_id}", response=MirrorState, summary="Change a mirror (admins)"
)
def edit_mirror(request: HttpRequest, project_id: int, mirror_id: int, payload: MirrorChange) -> Any:
    return change_mirror(request.user, mirror_of(request, project_id, mirror_id), payload.dict())


@router.delete(
    "/projects/{int:project_id}/mirrors/{int:mirror_id}", response={204: None}, summary="Remove a mirror (admins)"
)
def remove_mirror(request: HttpRequest, project_id: int, mirror_id: int) -> Any:
    """What was sent stays there."""
    delete_mirror(request.user, mirror_of(request, project_id, mirror_id))
    return Status(204, None)


@router.get("/runs/{run_id}/mirrors", response=RunMirrorStates, summary="Where a run is sent, and how far")
def list_run_mirrors(request: HttpRequest, run_id: UUID) -> Any:
    return {"items": run_mirror_states(visible_run(request, run_id))}


@router.put("/runs/{run_id}/mirrors/{int:mirror_id}", response=RunMirrorStates, summary="Whether a mirror sends a run")
def choose_mirror(request: HttpRequest, run_id: UUID, mirror_id: int, payload: ChoiceIn) -> Any:
    run = visible_run(request, run_id)
    choose(request.user, run, mirror_id, payload.choice)
    return {"items": run_mirror_states(run)}
