"""Pages of projects with their members and invitations, and of all people of the installation."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.db.models import Prefetch
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from hacrl_web.accounts.login.forms import InvitedForm
from hacrl_web.accounts.login.views import BACKEND, redirect_to
from hacrl_web.accounts.models import Invitation, LoginLink, Membership, Project, Role, User
from hacrl_web.accounts.people import service as people
from hacrl_web.accounts.roles.projects import project_for, role_in
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.page_query import MAX_ID, page_of, whole_number

ROLE_TEXTS = {
    Role.VIEWER: "viewer: reads everything",
    Role.MEMBER: "member: creates and changes everything, deletes only what they made",
    Role.ADMIN: "admin: deletes everything too, and manages the members",
}
PAGE_SIZE = 50


# Projects


@require_http_methods(["GET", "HEAD", "POST"])
def project_list(request: HttpRequest) -> HttpResponse:
    """The user's projects with the user's role (for staff: all projects). POST creates one (staff)."""
    user = request.user
    errors: list[FieldError] = []
    if request.method == "POST":
        try:
            project = people.make_project(user, request.POST.get("name", ""))
            messages.success(request, f"Project “{project}” is ready: invite its members.")
            return redirect(project)
        except FieldErrors as refusal:
            if refusal.status == 403:
                raise
            errors = refusal.errors
    roles = dict(Membership.objects.filter(user=user).values_list("project", "role"))
    rows = [{"project": project, "role": roles.get(project.pk)} for project in Project.objects.visible_to(user)]
    context = {"rows": rows, "errors": errors, "name": request.POST.get("name", "")}
    return render(request, "accounts/people/projects.html", context, status=422 if errors else 200)


@require_POST
def project_switch(request: HttpRequest) -> HttpResponse:
    """Change the current project; empty: all projects (staff). Redirects to `next` if that is a list."""
    user = request.user
    key = request.POST.get("project", "")
    if key == "" and user.is_staff:
        user.chosen_project = None
    else:
        user.chosen_project = get_object_or_404(Project.objects.visible_to(user), pk=whole_number(key, MAX_ID))
    user.save(update_fields=["chosen_project"])
    return redirect_to(request, request.POST.get("next", ""))


@require_GET
def project_detail(request: HttpRequest, project_id: int) -> HttpResponse:
    """Members and their roles; admins also change them and invite."""
    return _show_project(request, people.visible_project(request, project_id))


@require_POST
def project_rename(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for(request, project_id, Role.ADMIN)
    try:
        people.rename_project(project, request.POST.get("name", ""))
    except FieldErrors as refusal:
        return _show_project(request, project, refusal)
    return redirect(project)


def _show_project(
    request: HttpRequest, project: Project, refusal: FieldErrors | None = None, *, status: int = 200, **more: Any
) -> HttpResponse:
    """The page of a project. more: a new invitation and its link."""
    admins = people.active_admins(project)
    members = list(project.memberships.select_related("user"))
    context = {
        "project": project,
        "members": [(member, not admins - {member.pk}) for member in members],  # True: the only admin
        "last_admin": people.LAST_ADMIN,
        "invitations": project.invitations.open().select_related("inviter"),
        "is_managed": role_in(request.user, project) == Role.ADMIN,
        "roles": [(str(role), text) for role, text in ROLE_TEXTS.items()],
        "errors": refusal.errors if refusal else [],
        **more,
    }
    return render(request, "accounts/people/project.html", context, status=refusal.status if refusal else status)


# Members


@require_POST
def member_change(request: HttpRequest, project_id: int, member_id: int) -> HttpResponse:
    """Change a member's role (`role`), or remove the member (`remove`). Everybody may leave a project."""
    project = people.visible_project(request, project_id)
    is_removed = bool(request.POST.get("remove"))
    member = people.manageable_member(request, project, member_id, is_removed=is_removed)
    try:
        if is_removed:
            people.remove_member(member)
            messages.success(request, f"{member.user} was removed from “{project}”.")
        else:
            people.set_role(member, people.checked_role(request.POST.get("role", "")))
    except FieldErrors as refusal:
        return _show_project(request, project, refusal)
    return redirect("accounts:project_list" if is_removed and member.user_id == request.user.pk else project)


# Invitations


@require_POST
def invite(request: HttpRequest, project_id: int) -> HttpResponse:
    """Create an invitation. This answer is the only page that shows its link: only its hash is stored."""
    project = project_for(request, project_id, Role.ADMIN)
    try:
        role = people.checked_role(request.POST.get("role", ""))
    except FieldErrors as refusal:
        return _show_project(request, project, refusal)
    new_invitation, link = people.create_invitation(request, project, role, request.POST.get("comment", ""))
    return _show_project(request, project, status=201, link=link, new_invitation=new_invitation)


@require_POST
def invitation_withdraw(request: HttpRequest, project_id: int, invitation_id: int) -> HttpResponse:
    project = project_for(request, project_id, Role.ADMIN)
    if people.withdraw_invitation(project, invitation_id):
        messages.success(request, "The invitation is withdrawn.")
    return redirect(project)


@login_not_required
@sensitive_post_parameters("password", "repeated")
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """GET shows the invitation and does not use it up. POST joins; a visitor creates an account with it."""
    row = Invitation.objects.usable(token).select_related("project", "inviter").first()
    if row is not None and request.method == "POST" and request.user.is_authenticated:
        if people.join(token, request.user):
            return redirect("home")
        row = None
    if row is None:
        return render(request, "accounts/people/invitation.html", {"invitation": None}, status=410)
    form = InvitedForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            user = people.join_as_new(token, form.cleaned_data["username"], form.cleaned_data["password"])
            login(request, user, backend=BACKEND)
            return redirect("home")
        except FieldErrors as refusal:
            refusal.add_to(form)
    context = {"invitation": row, "role": ROLE_TEXTS[Role(row.role)], "form": form}
    return render(request, "accounts/people/invitation.html", context, status=422 if form.errors else 200)


# People, for staff


@require_GET
def people_list(request: HttpRequest) -> HttpResponse:
    return _show_people(request)


@require_POST
def person_change(request: HttpRequest, user_id: int) -> HttpResponse:
    """`do`: close the account, open it again, unlink it from the provider's, or link (a one-time login link)."""
    if not request.user.is_staff:
        raise Http404
    person = get_object_or_404(User, pk=user_id)
    by, act = request.user, request.POST.get("do", "")
    if act == "link" and person.is_active and (by.is_superuser or not person.is_superuser):
        path = reverse("accounts:login_link", args=[LoginLink.objects.make(person)])
        return _show_people(request, link=request.build_absolute_uri(path), link_of=person)
    try:
        if act in ("close", "open"):
            people.set_active(by, person, act == "open")
            messages.success(request, f"The account of {person} is {'open' if act == 'open' else 'closed'}.")
        elif act == "unlink" and person.provider_account:
            people.unlink(by, person)
            messages.success(request, f"The account of {person} is unlinked from the sign-in provider.")
        else:
            messages.error(request, "This account does not allow that.")
    except FieldErrors as refusal:
        messages.error(request, str(refusal))
    return redirect("accounts:people_list")


def _show_people(request: HttpRequest, **more: Any) -> HttpResponse:
    if not request.user.is_staff:
        raise Http404
    memberships = Prefetch("memberships", Membership.objects.select_related("project"))
    rows = User.objects.order_by("-is_active", "username").prefetch_related(memberships)
    context = {"page": page_of(request, rows, PAGE_SIZE), **more}
    return render(request, "accounts/people/people.html", context)
