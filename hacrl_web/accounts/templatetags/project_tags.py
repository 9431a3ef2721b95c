"""Template tags of projects: whether the user may change an object, and the switch between projects."""

from __future__ import annotations

from typing import Any

from django import template
from django.db import DatabaseError

from hacrl_web.accounts.models import Project, Role, includes
from hacrl_web.accounts.roles.projects import administers, current_project, role_in

register = template.Library()
MAX_CHOICES = 100


@register.simple_tag(takes_context=True)
def may_change(context: template.Context, row: Any = None) -> bool:
    """Whether the user may change `row`; without one, whether the user may create objects in the current project."""
    user = context["user"]
    project = row.project if row is not None else current_project(user)
    if project is None:
        return bool(user.is_staff)
    role = role_in(user, project)
    return role is not None and includes(role, Role.MEMBER)


@register.simple_tag(takes_context=True)
def reads_audit(context: template.Context) -> bool:
    """Whether the user may read an audit log."""
    return administers(context["user"])


@register.simple_tag(takes_context=True)
def project_switch_tag(context: template.Context) -> dict[str, Any]:
    """The projects that the header offers; empty if there is only one."""
    user = context["user"]
    try:
        if user.is_staff:
            projects = list(Project.objects.all()[:MAX_CHOICES])
        else:
            projects = sorted((one.project for one in user.own_memberships), key=lambda one: (one.name, one.pk))
        if len(projects) < 2:
            return {}
        path = context["request"].path
        place = path if path.endswith("/") else ""  # back to a list, but not to the page of one object
        return {"projects": projects, "current": current_project(user), "has_all": user.is_staff, "next": place}
    except DatabaseError:  # the page "database busy" has this header too
        return {}
