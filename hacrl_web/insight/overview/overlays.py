"""Runs whose curves a reader may want behind those of a run: where it came from, and the baseline of its sweep."""

from __future__ import annotations

from typing import Any

from hacrl_web.insight.overview.results import baselines_by_seed
from hacrl_web.runs.models import Run


def suggested_overlays(run: Run, user: Any) -> list[dict[str, str]]:
    """id, name and relation of each, of the runs that the user may see."""
    baseline = baselines_by_seed(run).get(run.seed)
    related = {
        "continued from" if run.start_step else "cloned from": run.cloned_from_id,
        "retry of": run.retry_of_id,
        "baseline": baseline.pk if baseline else None,
    }
    names = dict(Run.objects.visible_to(user).filter(pk__in=filter(None, related.values())).values_list("pk", "name"))
    return [{"id": str(pk), "name": names[pk], "relation": relation} for relation, pk in related.items() if pk in names]
