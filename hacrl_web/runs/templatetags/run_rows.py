"""The headings and cells of the list of runs."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils import timezone

from hacrl_web.runs.models import Run, State
from hacrl_web.runs.run.results import with_results
from hacrl_web.runs.telemetry.scores import score_benchmark, score_word
from hacrl_web.runs.workspace.columns import ABSENT, setting_of

NUM_NEWEST = 5

register = template.Library()
register.simple_tag(score_word)
register.simple_tag(score_benchmark)


@register.filter(name="setting")
def setting_cell(run: Run, path: str) -> Any:
    """A stored setting of the run by its dotted path; None where it has none."""
    value = setting_of(run.spec, path)
    return None if value is ABSENT else value


@register.simple_tag(takes_context=True)
def newest_runs(context: template.Context, **of: Any) -> list[Run]:
    """The newest runs of a group, a benchmark or a model's groups, with their results. of: a filter, `group=…`."""
    runs = Run.objects.listed_for(context["user"]).filter(archived_at=None, **of).exclude(state=State.DRAFT)
    newest = runs.select_related("sweep").order_by("-created_at").distinct()[:NUM_NEWEST]
    return list(with_results(list(newest), timezone.now()))
