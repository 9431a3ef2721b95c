"""Roles: which project somebody looks at and works in, and what the role there allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hacrl_web.accounts.models import Project, Role, includes, own_project_name
from hacrl_web.web.errors import FieldError, FieldErrors

ViewT = TypeVar("ViewT", bound=Callable[..., Any])
MOST_NAMED = 3


def current_project(user: Any) -> Project | None:
    """The project that the user's lists show. None: staff who look at all of them, or somebody who is in none."""
    if not user.is_authenticated:
        return None
    if user.is_staff:
        selection: Project | None = user.chosen_project
        return selection
    own = [membership.project for membership in user.own_memberships]
    return next((project for project in own if project.pk == user.chosen_project_id), own[0] if own else None)


def project_of_new(user: Any) -> Project:
    """Where a new object goes that is made of no other. Error: FieldErrors (403) where the user is in no project."""
    project = current_project(user)
    if project is None and user.own_memberships:
        project = user.own_memberships[0].project
    if project is None and user.is_staff:
        project = Project.objects.order_by("pk").first() or Project.objects.make(own_project_name(user.username), user)
    if project is None:
        raise _refused("You are in no project: ask the admin of one for an invitation.")
    return project


def role_in(user: Any, project: Project) -> str | None:
    """None for somebody who is no member."""
    if user.is_staff:
        return Role.ADMIN
    return next((one.role for one in user.own_memberships if one.project_id == project.pk), None)


def administers(user: Any) -> bool:
    """Whether the user is staff, or admin of a project."""
    return user.is_staff or any(one.role == Role.ADMIN for one in user.own_memberships)


def require(user: Any, project: Project, needed: str) -> None:
    """Error: FieldErrors (403) where the user's role in the project does not include `needed`."""
    role = role_in(user, project)
    if role is None:
        raise _refused("You are not in the project that this belongs to.")
    if not includes(role, needed):
        raise _refused(f"You are a {role} of project “{project}”: {_way_out(user, project, needed)}")


def _way_out(user: Any, project: Project, needed: str) -> str:
    """Who can change that somebody's role does not reach, and where else it would."""
    if needed == Role.ADMIN:
        return "only its admins may do that."
    admins = project.memberships.filter(role=Role.ADMIN, user__is_active=True)
    names = list(admins.values_list("user__username", flat=True)[: MOST_NAMED + 1])
    named = ", ".join(names[:MOST_NAMED]) + (" and others" if len(names) > MOST_NAMED else "")
    text = f"you look, and change nothing. Its admins{f' ({named})' if named else ''} can make you a member."
    elsewhere = next((one.project for one in user.own_memberships if includes(one.role, needed)), None)
    return text + (f" Or switch to project “{elsewhere}”, where you may change things." if elsewhere else "")


def for_members(view: ViewT) -> ViewT:
    """Mark a page that is only a form: to a viewer, `middleware.ProjectRoleGuard` answers with a refusal instead."""
    view.is_for_members = True  # type: ignore[attr-defined]
    return view


def require_here(user: Any) -> None:
    """Error: FieldErrors (403) for somebody who may make nothing new in the project that the lists show."""
    if not user.is_staff:
        require(user, project_of_new(user), Role.MEMBER)


def require_delete(user: Any, row: Any) -> None:
    """Members delete what is their own, admins everything. Error: FieldErrors (403)."""
    require(user, row.project, Role.MEMBER)
    if row.owner_id != user.pk and role_in(user, row.project) != Role.ADMIN:
        raise _refused(f"Somebody else made this: only they and the admins of project “{row.project}” may delete it.")


def require_some_project(user: Any) -> None:
    """Error: FieldErrors (403) for somebody who may change nothing anywhere."""
    if not user.is_staff and all(one.role == Role.VIEWER for one in user.own_memberships):
        require_here(user)


def _refused(message: str) -> FieldErrors:
    return FieldErrors([FieldError("forbidden", message, None)], 403)
