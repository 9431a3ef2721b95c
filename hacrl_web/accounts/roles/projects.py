"""The current project of a user, and the checks of the user's role in a project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from hacrl_web.accounts.models import Project, Role, User, includes, own_project_name
from hacrl_web.web.errors import FieldErrors, listed

ViewT = TypeVar("ViewT", bound=Callable[..., Any])
MAX_NAMED = 3


def current_project(user: User | AnonymousUser) -> Project | None:
    """The project that the user's lists show. None: all projects (staff), or the user is in none."""
    if not user.is_authenticated:
        return None
    if user.is_staff:
        selection: Project | None = user.chosen_project
        return selection
    own = [membership.project for membership in user.own_memberships]
    return next((project for project in own if project.pk == user.chosen_project_id), own[0] if own else None)


def project_of_new(user: User) -> Project:
    """The project of a new object that is not derived from another. Error: FieldErrors (403) for a user in none."""
    project = current_project(user)
    if project is None and user.own_memberships:
        project = user.own_memberships[0].project
    if project is None and user.is_staff:
        project = Project.objects.order_by("pk").first() or Project.objects.make(own_project_name(user.username), user)
    if project is None:
        raise forbidden("You are in no project: ask the admin of a project for an invitation.")
    return project


def role_in(user: User | AnonymousUser, project: Project) -> str | None:
    """The user's role in the project; None for a visitor, and for a user who is not a member."""
    if not user.is_authenticated:
        return None
    if user.is_staff:
        return Role.ADMIN
    return next((one.role for one in user.own_memberships if one.project_id == project.pk), None)


def administers(user: User) -> bool:
    """Whether the user is staff, or admin of a project."""
    return user.is_staff or any(one.role == Role.ADMIN for one in user.own_memberships)


def require(user: User, project: Project, needed: str) -> None:
    """Error: FieldErrors (403) if the user's role in the project does not include `needed`."""
    role = role_in(user, project)
    if role is None:
        raise forbidden("You are not in the project that this belongs to.")
    if not includes(role, needed):
        raise forbidden(f"You are a {role} of project “{project}”: {_way_out(user, project, needed)}")


def project_for(request: HttpRequest, project_id: int, needed: str) -> Project:
    """Errors: Http404 for a project that the user does not see; FieldErrors (403) as of `require`."""
    project = get_object_or_404(Project.objects.visible_to(request.user), pk=project_id)
    require(request.user, project, needed)
    return project


def _way_out(user: User, project: Project, needed: str) -> str:
    """Name the people who can give the user the role, and a project where the user has it."""
    if needed == Role.ADMIN:
        return "only its admins may do that."
    admins = project.memberships.filter(role=Role.ADMIN, user__is_active=True)
    names = listed(list(admins.values_list("user__username", flat=True)[: MAX_NAMED + 1]), MAX_NAMED)
    text = f"you may read, but not change anything. Its admins{f' ({names})' if names else ''} can make you a member."
    other = next((one.project for one in user.own_memberships if includes(one.role, needed)), None)
    return text + (f" Or switch to project “{other}”, where you may change things." if other else "")


def for_members(view: ViewT) -> ViewT:
    """Mark a page that is only a form: `middleware.ProjectRoleGuard` refuses it to viewers."""
    view.is_for_members = True  # type: ignore[attr-defined]
    return view


def require_here(user: User) -> None:
    """Error: FieldErrors (403) for a user who may not create objects in the project that the lists show."""
    if not user.is_staff:
        require(user, project_of_new(user), Role.MEMBER)


def require_delete(user: User, row: Any) -> None:
    """Members may delete their own objects, admins all. Error: FieldErrors (403)."""
    require(user, row.project, Role.MEMBER)
    if row.owner_id != user.pk and role_in(user, row.project) != Role.ADMIN:
        raise forbidden(f"Only its owner and the admins of project “{row.project}” may delete this.")


def require_some_project(user: User) -> None:
    """Error: FieldErrors (403) for a user who is only a viewer, in every project."""
    if not user.is_staff and all(one.role == Role.VIEWER for one in user.own_memberships):
        require_here(user)


def forbidden(message: str) -> FieldErrors:
    return FieldErrors.single("forbidden", message, status=403)
