"""API of Hub tokens: whether one is set and works; none is ever sent back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router, Status
from typing_extensions import TypedDict

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.roles.projects import project_for
from hacrl_web.registry.hub_tokens.service import hub_token_state, remove_hub_token, set_hub_token
from hacrl_web.web.schemas import StrictBody

router = Router(tags=["hub token"])


class HubTokenAnswer(TypedDict):
    """works: the hub named its account at the last check; null without a token.  hub_name: that account."""

    is_set: bool
    works: bool | None
    hub_name: str | None
    problem: str | None
    set_at: datetime | None
    checked_at: datetime | None
    last_used_at: datetime | None


class HubTokenIn(StrictBody):
    """token: of huggingface.co/settings/tokens, with the right to read."""

    token: str


@router.get("/hub-token", response=HubTokenAnswer, summary="Whether you have a Hub token, and whether it works")
def get_own(request: HttpRequest) -> Any:
    return hub_token_state(request.user)


@router.post("/hub-token", response=HubTokenAnswer, summary="Set or replace your Hub token, after a check with the hub")
def set_own(request: HttpRequest, payload: HubTokenIn) -> Any:
    set_hub_token(request.user, payload.token)
    return hub_token_state(request.user)


@router.delete("/hub-token", response={204: None}, summary="Remove your Hub token")
def remove_own(request: HttpRequest) -> Any:
    remove_hub_token(request.user)
    return Status(204, None)


@router.get(
    "/projects/{int:project_id}/hub-token",
    response=HubTokenAnswer,
    summary="Whether a project has a Hub token, and whether it works (members)",
)
def get_of_project(request: HttpRequest, project_id: int) -> Any:
    return hub_token_state(project_for(request, project_id, Role.MEMBER))


@router.post(
    "/projects/{int:project_id}/hub-token",
    response=HubTokenAnswer,
    summary="Set or replace a project's Hub token (its admins)",
)
def set_of_project(request: HttpRequest, project_id: int, payload: HubTokenIn) -> Any:
    """Set the project's token, which its members' runs, inspections and imports use instead of their own."""
    project = project_for(request, project_id, Role.ADMIN)
    set_hub_token(project, payload.token)
    return hub_token_state(project)


@router.delete(
    "/projects/{int:project_id}/hub-token", response={204: None}, summary="Remove a project's Hub token (its admins)"
)
def remove_of_project(request: HttpRequest, project_id: int) -> Any:
    remove_hub_token(project_for(request, project_id, Role.ADMIN))
    return Status(204, None)
