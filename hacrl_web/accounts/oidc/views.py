"""Sign-in at the OpenID Connect provider: the way there, and the way back; and links of accounts here with ones there.

What the way back must match (state, nonce, PKCE verifier, the page to open, the user who links an account) is a signed
cookie of this browser, so a visitor writes nothing to the database.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from authlib.integrations.django_client import DjangoOAuth2App
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.core import signing
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_GET, require_POST

from hacrl_web.accounts.login.forms import LoginForm
from hacrl_web.accounts.login.views import BACKEND, LEAVING, redirect_to
from hacrl_web.accounts.oidc.provider import SignInRefused, client_of, verified_claims
from hacrl_web.accounts.oidc.service import attach_account, require_unlinked, user_of_claims
from hacrl_web.accounts.people import service as people
from hacrl_web.ops.oidc_settings import OidcProvider
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.middleware import refusal_response

COOKIE = "hacrl_sign_in"
LIFETIME_S = 600  # for the person to sign in over there
MAX_NEXT = 1000  # characters of the address to open afterwards: the cookie holds it
MAX_HINT = 6000  # characters of a token in the address that signs out; longer addresses are refused by servers


def _provider() -> OidcProvider:
    provider: OidcProvider | None = settings.OIDC
    if provider is None:
        raise Http404
    return provider


@login_not_required
@require_GET
def sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider."""
    provider = _provider()
    target = request.GET.get("next", "")[:MAX_NEXT]
    if request.user.is_authenticated:
        return redirect_to(request, target)
    try:
        begun = _way_there(request, provider, next=target)
    except SignInRefused as refusal:
        return _refused(request, refusal, target)
    return _with_cookie(HttpResponseRedirect(begun.pop("url")), begun)


@require_POST
def link_account(request: HttpRequest) -> HttpResponse:
    """Send the user to the provider, whose account is linked to the user's on the way back.

    The answer is a page that moves on, for the reason that `log_out` gives.
    """
    provider, user = _provider(), request.user
    try:
        require_unlinked(provider, user)
        # prompt: somebody else may be signed in at the provider in this browser.
        begun = _way_there(request, provider, {"prompt": "login"}, next=reverse("accounts:account"), link=user.pk)
    except SignInRefused as refusal:
        return _refused(request, refusal, "")
    context = {"address": begun.pop("url"), "provider": provider}
    return _with_cookie(render(request, "oidc/linking.html", context), begun)


@require_POST
def unlink_account(request: HttpRequest) -> HttpResponse:
    """Unlink the account of a user who has a password."""
    unlink_own(request)
    messages.success(request, "Your account is unlinked: log in with your password.")
    return redirect("accounts:account")


def unlink_own(request: HttpRequest) -> None:
    """Unlink the user of this session, which continues. Error: FieldErrors (409)."""
    user = request.user
    people.unlink(user, user, but=request.session.session_key)
    request.session.pop(LEAVING, None)


def _way_there(
    request: HttpRequest, provider: OidcProvider, query: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """The address at the provider (`url`), and what the way back must match, with `more`. Error: SignInRefused."""
    back = request.build_absolute_uri(reverse("oidc:callback"))
    begun: dict[str, Any] = client_of(provider).create_authorization_url(back, **(query or {}))
    return begun | {"redirect_uri": back} | more


def _with_cookie(response: HttpResponse, begun: dict[str, Any]) -> HttpResponse:
    response.set_cookie(
        COOKIE,
        signing.dumps(begun, salt=COOKIE),
        max_age=LIFETIME_S,
        path=reverse("oidc:start"),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


@login_not_required
@require_GET
def finish_sign_in(request: HttpRequest) -> HttpResponse:
    """Log in the person whom the provider sends back, or link the account there to the user's."""
    provider = _provider()
    values = _cookie_values(request)
    is_begun_here = bool(values) and constant_time_compare(values["state"], request.GET.get("state", ""))
    target = values.get("next", "")
    try:
        _check_way_back(request, provider, is_begun_here=is_begun_here)
        _check_linking_user(request, values)
        there = client_of(provider)
        claims = verified_claims(provider, there, request.GET["code"], values)
        if "link" in values:
            attach_account(provider, request.user, claims)
            messages.success(request, f"Your account is linked: from now on you can also log in with {provider.name}.")
        else:
            login(request, user_of_claims(provider, claims), backend=BACKEND)
            # The roles are read again at the next sign-in: after a working day.
            request.session.set_expiry(timezone.now() + timedelta(hours=provider.session_h))
            request.session[LEAVING] = _sign_out_address(request, there, claims["id_token"])
        response = redirect_to(request, target)
    except SignInRefused as refusal:
        response = _refused(request, refusal, target)
    if is_begun_here:  # else an address that a stranger sends would end a sign-in under way
        response.delete_cookie(COOKIE, path=reverse("oidc:start"))
    return response


def _cookie_values(request: HttpRequest) -> dict[str, Any]:
    """The values of the cookie; empty if it is missing, forged or too old."""
    try:
        values: dict[str, Any] = signing.loads(request.COOKIES.get(COOKIE, ""), salt=COOKIE, max_age=LIFETIME_S)
        return values
    except signing.BadSignature:
        return {}


def _check_way_back(request: HttpRequest, provider: OidcProvider, *, is_begun_here: bool) -> None:
    """Error: SignInRefused for a way back that this browser did not begin, or that the provider refused."""
    if request.GET.get("error"):  # some send it without the state
        raise SignInRefused(f"{provider.name} did not sign you in: start again, or log in with a password.")
    if not is_begun_here:
        raise SignInRefused("This sign-in was not begun here, or more than 10 minutes ago: start again.")
    if not request.GET.get("code"):
        raise SignInRefused(f"{provider.name} did not confirm this sign-in: start again.")


def _check_linking_user(request: HttpRequest, values: dict[str, Any]) -> None:
    """Error: SignInRefused if the user who began to link is no longer the one who is logged in."""
    if "link" in values and request.user.pk != values["link"]:
        raise SignInRefused("You are no longer logged in to the account that you began to link: log in and link again.")


def _sign_out_address(request: HttpRequest, there: DjangoOAuth2App, id_token: str) -> str:
    """The address that ends the person's session at the provider (RP-initiated logout); empty if there is none."""
    if not there.server_metadata["end_session_endpoint"]:
        return ""
    hint = id_token if len(id_token) <= MAX_HINT else None
    back = request.build_absolute_uri(reverse("accounts:login"))
    return str(there.create_logout_url(back, hint, client_id=there.client_id)["url"])


def _refused(request: HttpRequest, refusal: SignInRefused, target: str) -> HttpResponse:
    """The login page with the refusal; for a user who is logged in, a page of its own."""
    if request.user.is_authenticated:
        return refusal_response(request, FieldErrors.single("forbidden", str(refusal), status=refusal.status))
    context = {"form": LoginForm(request), "refusal": str(refusal), "next": target, "provider": settings.OIDC}
    return render(request, "accounts/login/login.html", context, status=refusal.status)
