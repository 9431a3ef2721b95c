"""API of language models, with the services, checks and messages of the pages."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import ModelSchema, Query, Router, Status
from pydantic import Field

from hacrl_web.accounts.roles.projects import require_delete
from hacrl_web.registry.language_models import service
from hacrl_web.registry.models import LanguageModel
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import EVERY_FIELD, PageOf, StrictBody

router = Router(tags=["registry"])


class ModelIn(StrictBody):
    location: str = Field(description="Hub id, or a folder on the server below its model folders.")
    kind: str = "local"
    revision: str = Field("", description="Branch, tag or commit of the hub.")
    name: str = Field("", description="Its name here.")


class ModelOut(ModelSchema):
    model_config = EVERY_FIELD
    revision: str
    architecture: str
    tokenizer_hash: str
    id: int
    name: str
    facts: dict[str, Any]

    class Meta:
        model = LanguageModel
        exclude = ("project", "owner", "provenance")


@router.post("/models", response={201: ModelOut}, summary="Register a model; it is inspected first")
def create_model(request: HttpRequest, payload: ModelIn) -> Any:
    return Status(201, service.register_model(request.user, **payload.dict()))


@router.get("/models", response=PageOf[ModelOut])
def list_models(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(LanguageModel.objects.visible_to(request.user), query)


@router.get("/models/{int:pk}", response=ModelOut)
def get_model(request: HttpRequest, pk: int) -> Any:
    return get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)


@router.delete("/models/{int:pk}", response={204: None}, summary="Forget a model; its files stay where they are")
def delete_model(request: HttpRequest, pk: int) -> Any:
    """Delete a model, unless an agent group uses it."""
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    require_delete(request.user, model)
    service.delete_model(model)
    return Status(204, None)
