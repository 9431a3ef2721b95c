"""API of agent groups, with the services, checks and messages of the pages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema, Status
from pydantic import Field
from pydantic import create_model as create_schema
from typing_extensions import TypedDict

from hacrl_web.accounts.roles.projects import require_delete
from hacrl_web.registry.agent_groups import service
from hacrl_web.registry.agent_groups.model_pairs import ModelPair, measured_facts
from hacrl_web.registry.models import AGENT_FIELDS, AgentGroup
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody
from workers.contract.spec.agent import AgentSpec

router = Router(tags=["registry"])


# Any: the service checks the settings, with the form's messages.
_settings_in: Any = dict.fromkeys(AGENT_FIELDS, (Any, None))
_settings_out: Any = {name: (AgentSpec.model_fields[name].annotation, ...) for name in AGENT_FIELDS}
AgentIn = create_schema("AgentIn", __base__=StrictBody, model=(int, ...), name=(str, ""), **_settings_in)
AgentOut = create_schema(
    "AgentOut", __base__=Schema, model=(int, ...), name=(str, ...), position=(int, ...), **_settings_out
)


class GroupIn(StrictBody):
    name: str
    # The service refuses more than a group can have.
    agents: list[AgentIn] = Field(max_length=100)  # type: ignore[valid-type]


class GroupCopyIn(StrictBody):
    """agents: settings by the name of an agent, in place of those of the copied group; null is the default."""

    name: str
    agents: dict[str, dict[str, Any]] = {}


class GroupOut(Schema):
    """edit_of: the id of the version before."""

    id: int
    name: str
    edit_of: int | None = Field(alias="edit_of_id")
    agents: list[AgentOut]  # type: ignore[valid-type]
    created_at: datetime

    @staticmethod
    def resolve_agents(group: AgentGroup) -> list[dict[str, Any]]:
        return [
            {"model": agent.model_id, "name": agent.name, "position": agent.position}
            | {name: agent.setting(name) for name in AGENT_FIELDS}
            for agent in group.agents.all()
        ]


class PairAnswer(TypedDict):
    """Two agents of a group: what differs, and how much longer a text is in the other's tokens.

    drift: the length ratio minus 1. facts: what was measured of both tokenizers.
    """

    agents: list[str]
    kind: str
    drift: float | None
    warnings: list[str]
    facts: dict[str, Any] | None


@router.post("/groups", response={201: GroupOut}, summary="Create a group of agents")
def create_group(request: HttpRequest, payload: GroupIn) -> Any:
    return Status(201, service.create_group(request.user, **payload.dict()))


@router.get("/groups", response=PageOf[GroupOut])
def list_groups(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(AgentGroup.objects.visible_to(request.user).prefetch_related("agents"), query)


@router.get("/groups/{int:pk}", response=GroupOut)
def get_group(request: HttpRequest, pk: int) -> Any:
    return get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)


@router.post(
    "/groups/{int:pk}/copy",
    response={201: GroupOut},
    summary="Create a group of the same agents with other settings; the group and its runs stay as they are",
)
def copy_group(request: HttpRequest, pk: int, payload: GroupCopyIn) -> Any:
    """Create a newer version of a group with other settings. The old group and its runs stay as they are."""
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    copied = service.copy_group(request.user, group, name=payload.name, changes=payload.agents)
    return Status(201, copied)


@router.delete("/groups/{int:pk}", response={204: None}, summary="Delete an agent group; its models stay")
def delete_group(request: HttpRequest, pk: int) -> Any:
    """Delete a group, unless a run, even an ended one, uses it: results are compared by their group."""
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    require_delete(request.user, group)
    service.delete_group(group)
    return Status(204, None)


@router.get(
    "/groups/{int:pk}/pairs/{int:first}/{int:second}", response=PairAnswer, summary="What two agents have in common"
)
def get_pair(request: HttpRequest, pk: int, first: int, second: int) -> Any:
    """first, second: positions of the agents, the lower one first. The first request measures the pair in seconds."""
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    agents = group.pair_at(first, second)
    if agents is None:
        raise Http404
    facts = measured_facts(agents[0].model, agents[1].model, request.user)
    pair = ModelPair(agents[0], agents[1], facts)
    names = [agent.name for agent in agents]
    return {"agents": names, "kind": pair.kind, "drift": pair.drift, "warnings": pair.warnings, "facts": facts}
