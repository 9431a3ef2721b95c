"""Reports that people write about their runs."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import audited
from hacrl_web.accounts.roles.visibility import ProjectRow, ProjectRowQuerySet


@audited("project", "title", "text")
class Report(ProjectRow):
    """A text of a project in Markdown, with panels that show runs and boards as they are when it is read."""

    section = "reports"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="reports")
    title = models.CharField(max_length=120)
    text = models.TextField(blank=True)
    version = models.PositiveIntegerField(default=1)  # grows with every change
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(default=timezone.now)
    changed_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(default=timezone.now)
    changed_by = models.CharField(max_length=150, blank=True)  # name of the user

    objects = ProjectRowQuerySet["Report"].as_manager()

    class Meta:
        ordering = ["-changed_at", "-pk"]

    def __str__(self) -> str:
        return self.title

    def get_absolute_url(self) -> str:
        return reverse("reports:report", args=[self.pk])
