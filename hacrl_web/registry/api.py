"""Models and groups over JSON: the same services as the forms, so the same checks and messages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from hacrl_web.registry import services
from hacrl_web.registry.models import AgentGroup, LanguageModel

router = Router(tags=["registry"])


class Request(Schema):
    """A request body: unknown keys are refused, and true is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PageQuery(Schema):
    limit: int = Query(100, ge=1, le=1000)
    offset: int = Query(0, ge=0, le=1_000_000_000)


def page_of(rows: QuerySet[Any], page: PageQuery) -> dict[str, Any]:
    return {"items": list(rows[page.offset : page.offset + page.limit]), "count": rows.count()}


# Language models


class ModelIn(Request):
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


@router.post("/models", response={201: ModelOut})
def create_model(request: HttpRequest, payload: ModelIn) -> Any:
    return 201, services.register_model(request.user, **payload.dict())


@router.get("/models", response=ModelPage)
def list_models(request: HttpRequest, page: Query[PageQuery]) -> Any:
    return page_of(LanguageModel.objects.visible_to(request.user), page)


@router.get("/models/{int:pk}", response=ModelOut)
def get_model(request: HttpRequest, pk: int) -> Any:
    return get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)


# Agent groups


class AgentIn(Request):
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


class GroupIn(Request):
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


@router.post("/groups", response={201: GroupOut})
def create_group(request: HttpRequest, payload: GroupIn) -> Any:
    return 201, services.create_group(request.user, **payload.dict())


@router.get("/groups", response=GroupPage)
def list_groups(request: HttpRequest, page: Query[PageQuery]) -> Any:
    return page_of(AgentGroup.objects.visible_to(request.user).prefetch_related("agents"), page)


@router.get("/groups/{int:pk}", response=GroupOut)
def get_group(request: HttpRequest, pk: int) -> Any:
    return get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
