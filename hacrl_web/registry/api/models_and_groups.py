"""Models and groups over JSON: the same services as the forms, so the same checks and messages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema, Status
from pydantic import Field

from hacrl_web.accounts.projects import require_delete
from hacrl_web.registry.api.answers import ChecksAnswer, PairAnswer
from hacrl_web.registry.language_models import deletion, services
from hacrl_web.registry.language_models.model_pairs import ModelPair, is_measured, measured_facts
from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import StrictBody

router = Router(tags=["registry"])


# Language models


class ModelIn(StrictBody):
    location: str
    kind: str = "local"
    revision: str = ""
    name: str = ""


class ModelOut(Schema):
    id: int
    name: str
    kind: str
    location: str
    revision: str
    architecture: str
    num_parameters: int | None
    vocab_size: int | None
    tokenizer_hash: str
    has_chat_template: bool
    context_length: int | None
    facts: dict[str, Any]
    created_at: datetime


class ModelPage(Schema):
    items: list[ModelOut]
    count: int
    next: str | None


@router.post("/models", response={201: ModelOut})
def create_model(request: HttpRequest, payload: ModelIn) -> Any:
    return 201, services.register_model(request.user, **payload.dict())


@router.get("/models", response=ModelPage)
def list_models(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(LanguageModel.objects.visible_to(request.user), query)


@router.get("/models/{int:pk}", response=ModelOut)
def get_model(request: HttpRequest, pk: int) -> Any:
    return get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)


@router.post(
    "/models/{int:pk}/check", response=ChecksAnswer, summary="Check a registered model again; nothing is changed"
)
def check_model(request: HttpRequest, pk: int) -> Any:
    """Refused with what is wrong where its folder is gone or changed, or where a check fails."""
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    services.check_unchanged(model, field="location")
    checks, _ = services.read_model_facts(model.location, model.revision)
    return {"checks": checks}


@router.delete("/models/{int:pk}", response={204: None}, summary="Forget a model; its files stay where they are")
def delete_model(request: HttpRequest, pk: int) -> Any:
    """Refused while an agent group has it."""
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    require_delete(request.user, model)
    deletion.delete_model(model)
    return Status(204, None)


# Agent groups


class AgentIn(StrictBody):
    """Settings of AgentSpec: the service has them checked, and says what is wrong in the form's words."""

    model: int
    name: str = ""
    learning_rate: Any = None
    prompt_format: Any = None
    lora_rank: Any = None
    lora_alpha: Any = None
    seed: Any = None
    prompt_template: Any = None
    chat_template_kwargs: Any = None


class GroupIn(StrictBody):
    name: str
    agents: list[AgentIn] = Field(max_length=100)  # the service says how many are possible


class AgentOut(Schema):
    model: int
    name: str
    position: int
    learning_rate: float | None
    prompt_format: str
    lora_rank: int
    lora_alpha: float
    seed: int | None
    prompt_template: str
    chat_template_kwargs: dict[str, bool | int | str]

    @staticmethod
    def resolve_model(agent: Any) -> int:
        return agent.model_id

    @staticmethod
    def resolve_lora_rank(agent: Any) -> int:
        return agent.setting("lora_rank")

    @staticmethod
    def resolve_lora_alpha(agent: Any) -> float:
        return agent.setting("lora_alpha")

    @staticmethod
    def resolve_seed(agent: Any) -> int | None:
        return agent.setting("seed")

    @staticmethod
    def resolve_prompt_template(agent: Any) -> str:
        return agent.setting("prompt_template")

    @staticmethod
    def resolve_chat_template_kwargs(agent: Any) -> dict[str, Any]:
        return agent.setting("chat_template_kwargs")


class GroupOut(Schema):
    id: int
    name: str
    agents: list[AgentOut]
    created_at: datetime


class GroupPage(Schema):
    items: list[GroupOut]
    count: int
    next: str | None


@router.post("/groups", response={201: GroupOut})
def create_group(request: HttpRequest, payload: GroupIn) -> Any:
    return 201, services.create_group(request.user, **payload.dict())


@router.get("/groups", response=GroupPage)
def list_groups(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(AgentGroup.objects.visible_to(request.user).prefetch_related("agents"), query)


@router.get("/groups/{int:pk}", response=GroupOut)
def get_group(request: HttpRequest, pk: int) -> Any:
    return get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)


@router.delete("/groups/{int:pk}", response={204: None}, summary="Delete an agent group; its models stay")
def delete_group(request: HttpRequest, pk: int) -> Any:
    """Refused while a run has it, an ended one too: results are compared by their group."""
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    require_delete(request.user, group)
    deletion.delete_group(group)
    return Status(204, None)


@router.get(
    "/groups/{int:pk}/pairs/{int:first}/{int:second}", response=PairAnswer, summary="What two agents have in common"
)
def get_pair(request: HttpRequest, pk: int, first: int, second: int) -> Any:
    """Places of the agents, the first the lower one. Measured now if it was not, which takes seconds."""
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    pairs = [(a, b) for a, b in group.agent_pairs() if (a.position, b.position) == (first, second)]
    if not pairs:
        raise Http404
    pair = ModelPair(*pairs[0], measured_facts(pairs[0][0].model, pairs[0][1].model))
    facts = pair.facts or {}
    if not is_measured(facts):
        message = str(facts.get("error") or "The two models could not be compared.")
        raise FieldErrors([FieldError("not_measured", message, None)], 409)
    names = [agent.name for agent in pairs[0]]
    return {"agents": names, "kind": pair.kind, "drift": pair.drift, "warnings": pair.warnings, "facts": facts}
