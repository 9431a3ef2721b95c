"""The headings of a table of runs."""

from __future__ import annotations

from typing import Any

from django import template

from hacrl_web.runs.telemetry.scores import score_word

register = template.Library()
register.simple_tag(score_word)


@register.inclusion_tag("runs/_heading.html", takes_context=True)
def heading(context: template.Context, name: str, label: str, is_number: bool = False) -> dict[str, Any]:
    """A heading; a link that sorts by its column where the page has `sorts` (pages/run_rows.py)."""
    sorts = context.get("sorts") or {}
    return {"label": label, "is_number": is_number, **sorts.get(name, {"query": "", "order": ""})}
