"""Invitations: made by a project's admins as a link that is shown once, used once by whoever has it."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from hacrl_web.accounts.login.forms import InvitedForm
from hacrl_web.accounts.login.views import BACKEND
from hacrl_web.accounts.models import Invitation, Project, Role, User
from hacrl_web.accounts.people import people
from hacrl_web.accounts.people.project_views import ROLE_WORDS, managed_project, show_project
from hacrl_web.web.errors import FieldErrors


@never_cache
@require_POST
def invite(request: HttpRequest, project_id: int) -> HttpResponse:
    """Make a link and show it, this once: only its hash is stored."""
    project = managed_project(request, project_id)
    try:
        role = people.checked_role(request.POST.get("role", ""))
    except FieldErrors as refused:
        return show_project(request, project, errors=refused.errors, status=refused.status)
    invitation_row, link = invited(request, project, role, request.POST.get("comment", ""))
    return show_project(request, project, status=201, link=link, made=invitation_row)


@require_POST
def invitation_withdraw(request: HttpRequest, project_id: int, invitation_id: int) -> HttpResponse:
    project = managed_project(request, project_id)
    if withdrawn(project, invitation_id):
        messages.success(request, "The invitation is withdrawn.")
    return redirect(project)


def invited(request: HttpRequest, project: Project, role: str, comment: str) -> tuple[Invitation, str]:
    """A new invitation and its link, which nothing can show again."""
    remark = "".join(letter for letter in comment[:80] if letter.isprintable()).strip()
    invitation_row, token = Invitation.objects.make(project, role, cast(User, request.user), remark)
    return invitation_row, request.build_absolute_uri(reverse("accounts:invitation", args=[token]))


def withdrawn(project: Project, invitation_id: int) -> bool:
    """End an invitation; False where it was used before. Error: Http404."""
    invitation_row = project.invitations.filter(pk=invitation_id).first()
    if invitation_row is None:
        raise Http404
    if invitation_row.used_at is not None:
        return False
    invitation_row.delete()
    return True


@login_not_required
@never_cache
@sensitive_post_parameters("password", "repeated")
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """GET shows what one is invited to and spends nothing; POST joins, with a new account where nobody is logged in."""
    invitation_row = Invitation.objects.usable(token).select_related("project", "inviter").first()
    if invitation_row is None:
        return render(request, "accounts/invitation.html", {"invitation": None}, status=410)
    if request.method == "POST" and request.user.is_authenticated:
        if people.join(token, cast(User, request.user)):
            return redirect("home")
        return render(request, "accounts/invitation.html", {"invitation": None}, status=410)
    form = InvitedForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid() and (user := _new_member(token, form)) is not None:
        login(request, user, backend=BACKEND)
        return redirect("home")
    context: dict[str, Any] = {
        "invitation": invitation_row,
        "role": ROLE_WORDS[Role(invitation_row.role)],
        "form": form,
    }
    return render(request, "accounts/invitation.html", context, status=422 if form.errors else 200)


def _new_member(token: str, form: InvitedForm) -> User | None:
    """The new user; None with the errors in the form."""
    try:
        return people.join_as_new(token, form.cleaned_data["username"], form.cleaned_data["password"])
    except FieldErrors as refused:
        for error in refused.errors:
            form.add_error(error.field if error.field in form.fields else None, error.message)
        return None
