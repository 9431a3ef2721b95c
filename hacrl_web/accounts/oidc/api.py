"""API of the link between the caller's account and the one at the sign-in provider."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from hacrl_web.accounts.oidc.views import unlink_own
from hacrl_web.accounts.roles.projects import forbidden
from hacrl_web.accounts.tokens.api import MeAnswer, me

router = Router(tags=["account"])


@router.post("/me/unlink", response=MeAnswer, summary="Unlink your account from the one at the sign-in provider")
def unlink_me(request: HttpRequest) -> Any:
    """Unlink your account. Only a browser's session may, and it continues: a stolen token must not change your login.

    Refused (409) for a user without a password, who could not log in any more.
    """
    if getattr(request, "api_token", None) is not None:
        raise forbidden("A token cannot change how its owner logs in: log in with a browser and use the page Account.")
    unlink_own(request)
    return me(request)
