"""Template tags of projects: whether somebody may change what a page shows, and the switch between projects."""

from __future__ import annotations

from typing import Any

from django import template
from django.db import DatabaseError

from hacrl_web.accounts.models import Project, Role, includes
from hacrl_web.accounts.projects import administers, current_project, role_in

register = template.Library()
MAX_SHOWN = 100


@register.simple_tag(takes_context=True)
def may_change(context: template.Context, row: Any = None) -> bool:
    """Whether the user may change this object; without one, make new ones in the project that the lists show."""
    user = context["user"]
    project = row.project if row is not None else current_project(user)
    if project is None:
        return bool(user.is_staff)
    role = role_in(user, project)
    return role is not None and includes(role, Role.MEMBER)


@register.simple_tag(takes_context=True)
def reads_audit(context: template.Context) -> bool:
    """Whether the user administers something, and so reads its audit log."""
    return administers(context["user"])


@register.simple_tag(takes_context=True)
def project_switch_tag(context: template.Context) -> dict[str, Any]:
    """What the header offers: nothing where there is one project at most."""
    user = context["user"]
    try:
        if user.is_staff:
            projects = list(Project.objects.all()[:MAX_SHOWN])
        else:
            projects = sorted((one.project for one in user.own_memberships), key=lambda one: (one.name, one.pk))
        if len(projects) < 2:
            return {}
        path = context["request"].path
        place = path if path.endswith("/") else ""  # a list is shown again; another page is of what it shows
        return {"projects": projects, "current": current_project(user), "has_all": user.is_staff, "next": place}
    except DatabaseError:  # the frame of the page that says "database busy" must not need the database
        return {}
