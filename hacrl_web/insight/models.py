"""What a person keeps of these pages: queries of the Rollouts tab by name."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from hacrl_web.accounts.audit_log import audited

MAX_SAVED = 50
MAX_QUERY = 2000  # characters


class SavedQueryQuerySet(models.QuerySet["SavedQuery"]):
    def visible_to(self, user: Any) -> SavedQueryQuerySet:
        """The user's own: nobody, staff neither, looks through another's."""
        return self.filter(owner=user) if user.is_authenticated else self.none()

    def usable_in(self, user: Any, run: Any) -> SavedQueryQuerySet:
        """A user's own queries of a run, and those kept for every run."""
        return self.visible_to(user).filter(Q(run=run) | Q(run=None))


@audited("name", "query", project="run.project_id")
class SavedQuery(models.Model):
    """A filter of the Rollouts tab that its user has named; without a run it is for every run."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_queries")
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, null=True, blank=True, related_name="saved_queries")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=MAX_QUERY)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = SavedQueryQuerySet.as_manager()

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "run", "name"], name="saved_query_once"),
            models.UniqueConstraint(fields=["owner", "name"], condition=Q(run=None), name="saved_query_once_for_all"),
        ]

    def __str__(self) -> str:
        return self.name
