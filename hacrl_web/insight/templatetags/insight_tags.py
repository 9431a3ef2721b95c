"""What other pages show of this app: results, siblings by seed, the run that trained a model, comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django import template

from hacrl_web.insight.compare.comparison import MAX_RUNS
from hacrl_web.insight.compare.views import comparison_content
from hacrl_web.insight.overview.ending import ending_of
from hacrl_web.insight.overview.overview import same_but_seed
from hacrl_web.insight.overview.panels import panels_of
from hacrl_web.insight.overview.results import results, suggested_overlays
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.models import Run
from hacrl_web.web.page_query import uuid_or_none

register = template.Library()
register.simple_tag(results, name="results_of_run")
register.simple_tag(panels_of, name="panels_of_run")
register.simple_tag(ending_of, name="ending_of_run")
register.simple_tag(comparison_content, name="comparison_of")


@register.simple_tag
def seeds_of(run: Run) -> list[int]:
    """The seeds of the runs of this run's sweep that differ in nothing else, its own included."""
    return [one.seed for one in same_but_seed(run)]


@register.simple_tag(takes_context=True)
def overlays_of_run(context: template.Context, run: Run) -> list[dict[str, str]]:
    """Runs to be drawn behind this one: its parent, and the baseline of its sweep."""
    return suggested_overlays(run, context["user"])


@register.simple_tag(takes_context=True)
def trained_by(context: template.Context, model: LanguageModel) -> Run | None:
    """The run behind a promoted model, if it is still there and the user may see it."""
    runs: Any = Run.objects.visible_to(context["user"])
    return runs.filter(pk=uuid_or_none(model.provenance.get("run"))).first()


@register.simple_tag
def place_of_agent(places: dict[str, int], name: str) -> int:
    """An agent's place in its run, which is its colour."""
    return places.get(name, 0)


@register.simple_tag
def compare_query(runs: Sequence[Run]) -> dict[str, Any]:
    """The address of a comparison of a sweep's runs: of the first seeds, if they are too many."""
    first_runs = sorted(runs, key=lambda run: (run.seed, run.created_at))[:MAX_RUNS]
    query = urlencode([("runs", str(run.pk)) for run in first_runs])
    return {"query": query, "count": len(first_runs), "is_all": len(first_runs) == len(runs)}
