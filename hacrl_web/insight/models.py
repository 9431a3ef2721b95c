"""What the pages of a run remember for a project."""

from __future__ import annotations

from django.db import models

from hacrl_web.accounts.audit.audit_log import audited
from hacrl_web.accounts.models import Project


@audited("project", "panels")
class PanelLayout(models.Model):
    """The panels of a project's run pages, as overview/panels.py reads them."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="panel_layout")
    panels = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"panels of {self.project}"
