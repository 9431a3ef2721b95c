"""Template tag of the Hub token's card."""

from __future__ import annotations

from typing import Any

from django import template

from hacrl_web.accounts.models import Project, Role, includes
from hacrl_web.accounts.roles.projects import role_in
from hacrl_web.registry.hub_tokens.service import hub_token_state

register = template.Library()


@register.inclusion_tag("registry/hub_tokens/_card.html", takes_context=True)
def hub_token_card(context: template.Context, project: Project | None = None) -> dict[str, Any]:
    """The state of the user's token with its forms; of a project's for its members, with forms for its admins."""
    user = context["user"]
    role = Role.ADMIN if project is None else role_in(user, project)
    is_shown = bool(role) and includes(str(role), Role.MEMBER)
    return {
        "state": hub_token_state(project or user) if is_shown else None,
        "project": project,
        "is_managed": role == Role.ADMIN,
        "csrf_token": context.get("csrf_token"),
    }
