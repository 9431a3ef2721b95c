"""Template tag of the quota and the retention on the page of a project."""

from __future__ import annotations

from typing import Any

from django import template

from hacrl_web.runs.limits.views import cards

register = template.Library()


@register.inclusion_tag("runs/limits/_cards.html", takes_context=True)
def limit_cards(context: template.Context, project: Any) -> dict[str, Any]:
    return {**cards(project, context["user"]), "csrf_token": context.get("csrf_token")}
