"""The headings and cells of the list of runs."""

from __future__ import annotations

from typing import Any

from django import template

from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.scores import score_benchmark, score_word
from hacrl_web.runs.workspace.columns import ABSENT, setting_of

register = template.Library()
register.simple_tag(score_word)
register.simple_tag(score_benchmark)


@register.filter(name="setting")
def setting_cell(run: Run, path: str) -> Any:
    """A stored setting of the run by its dotted path; None where it has none."""
    value = setting_of(run.spec, path)
    return None if value is ABSENT else value
