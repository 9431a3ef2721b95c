"""Pages of projects: the own ones, one with its members, and the switch between them."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from hacrl_web.accounts.login.views import redirect_to
from hacrl_web.accounts.models import Membership, Project, Role, User
from hacrl_web.accounts.people import people
from hacrl_web.accounts.projects import require
from hacrl_web.web.errors import FieldError, FieldErrors

ROLE_WORDS = {
    Role.VIEWER: "viewer: reads everything",
    Role.MEMBER: "member: creates and changes everything, deletes only what they made",
    Role.ADMIN: "admin: deletes everything too, and manages the members",
}


@require_http_methods(["GET", "HEAD", "POST"])
def project_list(request: HttpRequest) -> HttpResponse:
    """The user's projects with the own role (of staff: all projects); staff make new ones here."""
    user = cast(User, request.user)
    errors: list[FieldError] = []
    if request.method == "POST":
        try:
            project = people.make_project(user, request.POST.get("name", ""))
            messages.success(request, f"Project “{project}” is there: invite its members.")
            return redirect(project)
        except FieldErrors as refused:
            if refused.status == 403:
                raise
            errors = refused.errors
    roles = dict(Membership.objects.filter(user=user).values_list("project", "role"))
    rows = [{"project": project, "role": roles.get(project.pk)} for project in Project.objects.visible_to(user)]
    context = {"rows": rows, "errors": errors, "name": request.POST.get("name", "")}
    return render(request, "accounts/project_list.html", context, status=422 if errors else 200)


@require_POST
def project_switch(request: HttpRequest) -> HttpResponse:
    """Look at another project, or (staff) at all of them; back to the page where the switch was, if it is a list."""
    user = cast(User, request.user)
    key = request.POST.get("project", "")
    if key == "" and user.is_staff:
        user.chosen_project = None
    else:
        is_id = key.isascii() and key.isdigit() and len(key) < 19
        user.chosen_project = get_object_or_404(Project.objects.visible_to(user), pk=int(key) if is_id else 0)
    user.save(update_fields=["chosen_project"])
    return redirect_to(request, request.POST.get("next", ""))


@require_GET
def project_detail(request: HttpRequest, project_id: int) -> HttpResponse:
    """Members with their roles; whoever manages them changes both, and invites."""
    return show_project(request, visible_project(request, project_id))


@require_POST
def project_rename(request: HttpRequest, project_id: int) -> HttpResponse:
    project = managed_project(request, project_id)
    try:
        project.name = people.checked_name(request.POST.get("name", ""))
    except FieldErrors as refused:
        return show_project(request, Project.objects.get(pk=project.pk), errors=refused.errors, status=refused.status)
    project.save(update_fields=["name"])
    return redirect(project)


@require_POST
def member_change(request: HttpRequest, project_id: int, member_id: int) -> HttpResponse:
    """Another role (`role`), or out of the project (`remove`). Everybody may leave."""
    project = visible_project(request, project_id)
    is_removed = bool(request.POST.get("remove"))
    member = manageable_member(request, project, member_id, is_removed=is_removed)
    try:
        if is_removed:
            people.remove_member(member)
            messages.success(request, f"{member.user} is out of “{project}”.")
        else:
            people.set_role(member, people.checked_role(request.POST.get("role", "")))
    except FieldErrors as refused:
        return show_project(request, project, errors=refused.errors, status=refused.status)
    return redirect("accounts:project_list" if is_removed and member.user_id == request.user.pk else project)


def manageable_member(request: HttpRequest, project: Project, member_id: int, *, is_removed: bool) -> Membership:
    """The member that the user may change, or take out: everybody oneself. Errors: Http404; FieldErrors (403)."""
    member = project.memberships.select_related("user", "project").filter(pk=member_id).first()
    if not (is_removed and member is not None and member.user_id == request.user.pk):
        require(request.user, project, Role.ADMIN)
    if member is None:
        raise Http404
    return member


def visible_project(request: HttpRequest, project_id: int) -> Project:
    return get_object_or_404(Project.objects.visible_to(request.user), pk=project_id)


def managed_project(request: HttpRequest, project_id: int) -> Project:
    """Errors: Http404; FieldErrors (403) where the user does not manage its members."""
    project = visible_project(request, project_id)
    require(request.user, project, Role.ADMIN)
    return project


def show_project(
    request: HttpRequest, project: Project, *, status: int = 200, errors: list[FieldError] | None = None, **more: Any
) -> HttpResponse:
    """The page of a project. more: the link of an invitation that was made just now."""
    admins = people.active_admins(project)
    members = list(project.memberships.select_related("user"))
    context = {
        "project": project,
        "members": [(member, not admins - {member.pk}) for member in members],  # True: it cannot do without this one
        "last_admin": people.LAST_ADMIN,
        "invitations": project.invitations.open().select_related("inviter"),
        "is_managed": people.manages(request.user, project),
        "roles": [(str(role), words) for role, words in ROLE_WORDS.items()],
        "errors": errors or [],
        **more,
    }
    return render(request, "accounts/project_detail.html", context, status=status)
