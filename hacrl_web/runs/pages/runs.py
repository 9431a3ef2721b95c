"""Pages of runs: their list, and of one run the page and the metrics as CSV."""

from __future__ import annotations

import uuid
from itertools import chain
from typing import Literal

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from hacrl_web.runs.labels import tags_of
from hacrl_web.runs.models import HELD, Run, RunQuerySet, State
from hacrl_web.runs.pages.run_header import header, run_or_404
from hacrl_web.runs.pages.run_rows import Sort, headings, sorted_runs, with_results
from hacrl_web.runs.requests import visible_run
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.runs.telemetry.metric_series import metric_rows
from hacrl_web.web.page_query import PageQuery, Text, one_of, page_of
from hacrl_web.web.streaming import download_csv
from workers.contract.spec.run import RunSpec

PAGE_SIZE = 50
TAGS_SHOWN = 40
UNDER_WAY = "held"  # in the list's `state`: what the number in the header counts


class RunListQuery(PageQuery):
    """Filters of the list of runs; `q` is a part of the name of a run or its sweep."""

    state: State | Literal["", "held"] = ""
    tag: Text = ""
    archived: Literal["", "1"] = ""
    q: Text = ""
    sort: Sort = ""


@require_GET
def run_list(request: HttpRequest) -> HttpResponse:
    """Runs of the project, newest first."""
    query = RunListQuery.read(request.GET)
    every = Run.objects.listed_for(request.user)
    listed = every.filter(archived_at__isnull=not query.archived)
    tags = tags_of(listed)
    query = query.model_copy(update={"tag": one_of(query.tag, tags)})
    matches = _narrowed(listed, query)
    counts = dict(matches.order_by().values_list("state").annotate(Count("pk")))
    runs = matches.select_related("benchmark", "group", "sweep")
    if query.state:
        runs = runs.filter(state__in=HELD if query.state == UNDER_WAY else [query.state])
    page = page_of(request, sorted_runs(runs, query.sort), PAGE_SIZE)
    page.object_list = with_results(list(page.object_list), timezone.now())
    context = {
        "page": page,
        "sorts": headings(query, query.sort),
        "order_text": "sorted" if query.sort else "newest first",
        "query": query.encode(),
        "filters": query,
        "hidden": query.model_dump(mode="json", exclude={"q"}, exclude_defaults=True),
        "states": [
            (state, counts.get(state, 0), query.encode(state=state))
            for state in State.values
            if counts.get(state) or state == query.state
        ],
        "all_query": query.encode(state=""),
        "held_query": query.encode(state=UNDER_WAY),
        "tags": [(tag, query.encode(tag="" if tag == query.tag else tag)) for tag in tags[:TAGS_SHOWN]],
        "has_runs": every.exists(),
        "total": sum(counts.values()),
        "num_archived": _narrowed(every.filter(archived_at__isnull=False), query).count(),
        "archived_query": query.encode(archived="" if query.archived else "1", state=""),
        "num_held": sum(counts.get(state, 0) for state in HELD),
    }
    return render(request, "runs/pages/run_list.html", context)


def _narrowed(runs: RunQuerySet, query: RunListQuery) -> RunQuerySet:
    """The runs with the query's tag and name: links to a state keep these filters, and their counts use them."""
    if query.tag:
        runs = runs.tagged(query.tag)
    if query.q:
        runs = runs.filter(Q(name__icontains=query.q) | Q(sweep__name__icontains=query.q))
    return runs


class TabQuery(PageQuery):
    """The tab of a run's page; config and events have pages now."""

    tab: Literal["overview", "logs", "config", "events"] = "overview"


@require_GET
def run_detail(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """One run; charts and logs are filled by the page's socket, from the first event on."""
    run = run_or_404(request, run_id)
    tab = TabQuery.read(request.GET).tab
    if tab in ("config", "events"):
        return redirect(f"insight:run_{tab}", run_id)
    if run.is_evaluation_only and tab != "logs":
        return redirect("insight:run_evaluations", run_id)
    spec = stored_spec(run)
    context = header(run) | {
        "tab": tab,
        "page_data": {
            "agents": run.agent_names,
            "unmeasured": _unmeasured(spec, run.rollout_engine),
            "further": sorted(run.further_benchmarks),  # their evaluations are on no chart
            "rewards": [*spec.rewards.weights] if spec.rewards.terms else [],
            "score_word": run.score_word,
            "shares": spec.algorithm.shares_rollouts and len(spec.agents) > 1,
            "records": spec.telemetry.rollout_interval > 0,
        },
    }
    return render(request, "runs/pages/run_detail.html", context)


def _unmeasured(spec: RunSpec, engine: str) -> list[str]:
    """Metrics that have no chart because this run does not record or use them."""
    rule, interval = spec.algorithm, spec.telemetry.alignment_interval
    measured = {
        "kl": rule.beta > 0,
        "omega": rule.uses_omega,
        "gradient_alignment": 0 < interval <= spec.training.steps,
        "engine_logp_difference": engine != "transformers",
        "overlong_penalty/mean": spec.overlong.cache > 0,
    }
    return [name for name, is_measured in measured.items() if not is_measured]


@require_GET
def metrics_csv(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """Every number that the charts can draw, one per line."""
    run = visible_run(request, run_id)
    heading = ("step", "agent", "source", "metric", "value")
    return download_csv(request, chain([heading], metric_rows(run)), f"metrics-{run.pk}.csv")
