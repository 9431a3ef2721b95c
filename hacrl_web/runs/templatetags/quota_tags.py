"""Template tag of the quota's card on the page of a project."""

from __future__ import annotations

from typing import Any

from django import template

from hacrl_web.runs.pages.quotas import quota_rows

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
