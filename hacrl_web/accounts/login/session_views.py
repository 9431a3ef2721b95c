"""Page of one's own sessions: where one is logged in, and logging out there."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from hacrl_web.accounts.login.sessions import end_sessions, sessions_of
from hacrl_web.accounts.models import User
from hacrl_web.accounts.token_models import ApiToken


@require_GET
def session_list(request: HttpRequest) -> HttpResponse:
    """All sessions of the user, this one first."""
    sessions = sessions_of(cast(User, request.user), request.session.session_key)
    context = {"sessions": sessions, "num_tokens": ApiToken.objects.visible_to(request.user).usable().count()}
    return render(request, "accounts/session_list.html", context)


@require_POST
def session_end(request: HttpRequest) -> HttpResponse:
    """Log out of one session (`session`), or of all (`everywhere`), this one included.

    `tokens`, besides `everywhere`: revoke the user's API tokens too, which are no sessions.
    """
    user = cast(User, request.user)
    if request.POST.get("everywhere"):
        if request.POST.get("tokens"):
            ApiToken.objects.visible_to(user).revoke()
        end_sessions(user)
        request.session.flush()
        return redirect("accounts:login")
    if end_sessions(user, only=request.POST.get("session", ""), but=request.session.session_key):
        messages.success(request, "Logged out there.")
    else:
        messages.info(request, "That session had ended already.")
    return redirect("accounts:session_list")
