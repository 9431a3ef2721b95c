"""API of the caller: the user, and the user's API tokens."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, ModelSchema, Query, Router, Status
from typing_extensions import TypedDict

from hacrl_web.accounts.models import ApiToken, User
from hacrl_web.accounts.roles.projects import forbidden
from hacrl_web.accounts.tokens.service import MAX_DAYS, USUAL_DAYS, make_token
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import EVERY_FIELD, PageOf, StrictBody

router = Router(tags=["account"])


class TokenAnswer(ModelSchema):
    model_config = EVERY_FIELD
    id: int
    scopes: list[str]
    state: str

    class Meta:
        model = ApiToken
        fields = ("id", "name", "hint", "created_at", "expires_at", "last_used_at", "revoked_at")


class NewTokenAnswer(TokenAnswer):
    token: str


class MeAnswer(TypedDict):
    """is_linked: to an account at the sign-in provider."""

    id: int
    name: str
    is_staff: bool
    is_linked: bool
    token: TokenAnswer | None


class TokenIn(StrictBody):
    """scopes: read, write or both.  days: until it expires."""

    name: str
    scopes: Annotated[list[str], Field(max_length=10)] = ["read"]
    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] = USUAL_DAYS


@router.get("/me", response=MeAnswer, summary="The caller, and the token of this request")
def get_me(request: HttpRequest) -> Any:
    """`token` is null for a browser's session."""
    return me(request)


def me(request: HttpRequest) -> dict[str, Any]:
    """The values of MeAnswer."""
    user: User = request.user
    values = {"id": user.pk, "name": user.get_username(), "is_staff": user.is_staff}
    return values | {"is_linked": bool(user.provider_account), "token": getattr(request, "api_token", None)}


@router.get("/tokens", response=PageOf[TokenAnswer], summary="List your API tokens, newest first")
def list_tokens(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(ApiToken.objects.visible_to(request.user), query)


@router.post("/tokens", response={201: NewTokenAnswer}, summary="Create an API token; its text is in this answer only")
def create_token(request: HttpRequest, payload: TokenIn) -> Any:
    """Create a token. Only a browser's session may: a stolen token must not create tokens that outlive it."""
    if getattr(request, "api_token", None) is not None:
        raise forbidden("A token cannot create tokens: log in with a browser and use the page API tokens.")
    token, text = make_token(request.user, **payload.dict())
    return Status(201, TokenAnswer.from_orm(token).dict() | {"token": text})


@router.post("/tokens/{int:pk}/revoke", response=TokenAnswer, summary="Revoke a token; revoking it twice does nothing")
def revoke_token(request: HttpRequest, pk: int) -> Any:
    token = get_object_or_404(ApiToken.objects.visible_to(request.user), pk=pk)
    token.revoke()
    token.refresh_from_db()
    return token
