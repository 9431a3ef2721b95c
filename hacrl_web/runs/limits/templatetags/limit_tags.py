"""The quota and the retention of a project, for parts/project_cards.html."""

from __future__ import annotations

from django import template

from hacrl_web.runs.limits.views import cards

register = template.Library()
register.simple_tag(cards, name="limits_of")
