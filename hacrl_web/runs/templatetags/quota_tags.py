"""Template tags of the cards of quota and retention on the page of a project."""

from __future__ import annotations

from typing import Any

from django import template

from hacrl_web.runs.pages.quotas import quota_rows
from hacrl_web.runs.retention.settings import retention_of
from hacrl_web.runs.retention.views import retention_rows

register = template.Library()


@register.inclusion_tag("runs/_quota_card.html", takes_context=True)
def quota_card(context: template.Context, project: Any) -> dict[str, Any]:
    """What the project uses and may use; for staff with the form that sets it."""
    return {
        "project": project,
        "rows": quota_rows(project),
        "is_staff": context["user"].is_staff,
        "csrf_token": context.get("csrf_token"),
    }


@register.inclusion_tag("runs/_retention_card.html", takes_context=True)
def retention_card(context: template.Context, project: Any) -> dict[str, Any]:
    """How long the project keeps files; for staff with the form that leads to the page which sets it."""
    return {"project": project, "rows": retention_rows(retention_of(project)), "is_staff": context["user"].is_staff}
