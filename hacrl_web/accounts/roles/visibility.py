"""Which rows a user may see: the one rule of every list, page, socket and export.

`visible_to`: rows that the user may open.  `listed_for`: those of the user's current project.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, TypeVar

from django.apps import apps
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.db import models
from django.urls import ResolverMatch

from hacrl_web.accounts.audit.audit_log import AuditedQuerySet
from hacrl_web.accounts.models import Membership, Project, Role, User
from hacrl_web.accounts.roles.projects import current_project, project_of_new, require

RowT = TypeVar("RowT", bound=models.Model)
_OBJECT = re.compile(r"(\w+)/<(?:\w+:)?(\w+)>")  # the first object of an address: section, name of its id


def is_of_member(user: User | AnonymousUser, project: str = "project") -> models.Q:
    """Rows of the user's projects. project: the lookup from a row to its project."""
    own = Membership.objects.filter(user=user).order_by().values("project")
    return models.Q(**{f"{project}__in": own})


class ProjectRowQuerySet(AuditedQuerySet[RowT]):
    """Rows with a `project`."""

    project_path: ClassVar[str] = "project"  # the lookup from a row to its project

    def visible_to(self, user: User | AnonymousUser) -> ProjectRowQuerySet[RowT]:
        """Rows of the user's projects, all rows for staff, none for a visitor."""
        if not user.is_authenticated:
            return self.none()
        return self.all() if user.is_staff else self.filter(is_of_member(user, self.project_path))

    def listed_for(self, user: User | AnonymousUser) -> ProjectRowQuerySet[RowT]:
        """The visible rows of the user's current project."""
        project = current_project(user)
        visible = self.visible_to(user)
        return visible if project is None else visible.filter(**{self.project_path: project})


class ProjectRow(models.Model):
    """A row of a project, created by its owner, who must be a member."""

    # The part of an address before the id of such a row: models/7.
    section: ClassVar[str]

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Error: FieldErrors (403), and nothing is written."""
        if self._state.adding:
            owner: Any = self.owner
            if self.project_id is None:
                self.project = project_of_new(owner)
            require(owner, self.project, Role.MEMBER)
        super().save(*args, **kwargs)


def rows_at(match: ResolverMatch, user: User | AnonymousUser) -> ProjectRowQuerySet[Any] | None:
    """The object of an address, if visible, as a query of at most one row; None for an address without an object."""
    named = _OBJECT.search(match.route)
    by_section = {model.section: model for model in apps.get_models() if issubclass(model, ProjectRow)}
    model = by_section.get(named[1]) if named else None
    if named is None or model is None:
        return None
    visible: ProjectRowQuerySet[Any] = model._default_manager.visible_to(user)
    try:
        return visible.filter(pk=match.kwargs.get(named[2]))
    except (ValidationError, ValueError):  # not an id, which the operation reports
        return visible.none()
