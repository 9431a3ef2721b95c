"""Saved views of the list of runs."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from hacrl_web.accounts.audit.audit_log import audited
from hacrl_web.accounts.roles.visibility import ProjectRow, ProjectRowQuerySet


@audited("name", "query")
class RunView(ProjectRow):
    """A name for an address of the workspace of runs, for everybody in the project."""

    section = "run-views"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    query = models.TextField(blank=True)  # as workspace/query.py reads it

    objects = ProjectRowQuerySet["RunView"].as_manager()

    class Meta:
        ordering = ["name", "pk"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="run_view_name")]

    def __str__(self) -> str:
        return self.name
