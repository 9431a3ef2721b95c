"""The forms of a Hub token, on the pages of the account and of a project."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.roles.projects import project_for
from hacrl_web.registry.hub_tokens.service import Owner, remove_hub_token, set_hub_token
from hacrl_web.web.errors import FieldErrors


@sensitive_post_parameters("token")
@require_POST
def own_hub_token(request: HttpRequest) -> HttpResponse:
    """`do`: set or remove."""
    _act(request, request.user)
    return redirect("accounts:account")


@sensitive_post_parameters("token")
@require_POST
def project_hub_token(request: HttpRequest, project_id: int) -> HttpResponse:
    """`do`: set or remove; for the project's admins."""
    project = project_for(request, project_id, Role.ADMIN)
    _act(request, project)
    return redirect(project)


def _act(request: HttpRequest, owner: Owner) -> None:
    try:
        if request.POST.get("do") == "remove":
            remove_hub_token(owner)
            messages.success(request, "The Hub token is removed.")
            return
        row = set_hub_token(owner, request.POST.get("token", ""))
    except FieldErrors as refusal:
        messages.error(request, str(refusal))
        return
    if row.problem:
        messages.warning(request, row.problem)
    else:
        messages.success(request, f"The Hub token works: it is of the account {row.hub_name}.")
