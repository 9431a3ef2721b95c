"""Pages of runs: their list, and of one run the page, its log, metrics as CSV, disk use, tags and notes."""

from __future__ import annotations

import uuid
from itertools import chain
from typing import Any, Literal

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from hacrl_web.runs.archive.disk_use import disk_use
from hacrl_web.runs.labels import MAX_NOTES, MAX_TAG, MAX_TAGS, set_labels, split_tags, tags_of
from hacrl_web.runs.launch.drafts import open_cautions
from hacrl_web.runs.launch.queue import place_in_queue
from hacrl_web.runs.models import HELD, Run, RunQuerySet, State
from hacrl_web.runs.requests import visible_run
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.runs.telemetry import logs
from hacrl_web.runs.telemetry.metric_series import metric_rows
from hacrl_web.runs.worker.resumption import under_way
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import PageQuery, Text, one_of, page_of
from hacrl_web.web.streaming import download, download_csv
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
    context = {
        "page": page_of(request, runs, PAGE_SIZE),
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


def run_or_404(request: HttpRequest, run_id: uuid.UUID) -> Run:
    """The run with what its header shows. Error: Http404."""
    runs = Run.objects.visible_to(request.user).select_related("benchmark", "group", "sweep", "owner")
    return get_object_or_404(runs, pk=run_id)


def header(run: Run) -> dict[str, Any]:
    """What every tab of a run shows above it."""
    last_checkpoint = run.events.filter(type="checkpoint").order_by("-seq").first()
    agents = [{"name": name, "position": place} for place, name in enumerate(run.agent_names)]
    context = {"run": run, "agents": agents, "last_checkpoint": last_checkpoint, "place": place_in_queue(run)}
    if run.state == State.DRAFT:
        context["cautions"] = open_cautions(run)
    return context | {"resumption": under_way(run)}


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
            "unmeasured": _unmeasured(spec),
            "further": sorted(run.further_benchmarks),  # their evaluations are on no chart
            "shares": spec.algorithm.shares_rollouts and len(spec.agents) > 1,
        },
    }
    return render(request, "runs/pages/run_detail.html", context)


def _unmeasured(spec: RunSpec) -> list[str]:
    """Metrics that have no chart because this run does not record or use them."""
    rule, interval = spec.algorithm, spec.telemetry.alignment_interval
    measured = {
        "kl": rule.beta > 0,
        "omega": rule.uses_omega,
        "gradient_alignment": 0 < interval <= spec.training.steps,
        "engine_logp_difference": spec.rollout.engine != "transformers",
    }
    return [name for name, is_measured in measured.items() if not is_measured]


@require_GET
def metrics_csv(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """Every number that the charts can draw, one per line."""
    run = visible_run(request, run_id)
    heading = ("step", "agent", "source", "metric", "value")
    return download_csv(request, chain([heading], metric_rows(run)), f"metrics-{run.pk}.csv")


class LogQuery(PageQuery):
    """A search of the log: text, level, and source (the run's events or the trainer's output)."""

    q: Text = ""
    source: Literal["", "output"] = ""
    level: Text = ""


@require_GET
def log_search(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The newest lines that match, as a part of the Logs tab or as a page. The trainer's output has no levels."""
    run, query = visible_run(request, run_id), LogQuery.read(request.GET)
    matches = logs.search_output(run, query.q) if query.source else logs.search_events(run, query.q, query.level)
    context = {
        "run": run,
        "search": query.q,
        "level": query.level,
        "is_output": bool(query.source),
        "is_elsewhere": matches is None,
        "lines": (matches or [])[-logs.FOUND_SHOWN :],
        "is_cut": len(matches or []) > logs.FOUND_SHOWN,
    }
    is_part = bool(getattr(request, "htmx", False))
    return render(request, f"runs/pages/{'_log_found' if is_part else 'run_log'}.html", context)


@require_GET
def log_download(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """The whole log as text."""
    run = visible_run(request, run_id)
    return download(request, logs.as_text(run), f"log-{run.pk}.txt", "text/plain")


@require_GET
def run_disk(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The run's disk use, a part that the page loads later, because counting takes time."""
    run = visible_run(request, run_id)
    return render(request, "runs/archive/_disk.html", {"run": run, "use": disk_use(run)})


@require_http_methods(["GET", "HEAD", "POST"])
def run_labels(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Tags and notes of a run, for members to change and for viewers to read."""
    run = visible_run(request, run_id)
    tags, notes = ", ".join(run.tag_list), run.notes
    errors: dict[str | None, list[str]] = {}
    status = 200
    if request.method == "POST":
        tags, notes = request.POST.get("tags", ""), request.POST.get("notes", "")
        try:
            set_labels(run, split_tags(tags), notes)
            messages.info(request, "Tags and notes are saved.")
            return redirect(run)
        except FieldErrors as refused:
            status = refused.status
            for error in refused.errors:
                errors.setdefault(error.field, []).append(error.message)
    context = {
        "run": run,
        "tags": tags,
        "notes": notes,
        "tag_errors": errors.get("tags", []),
        "note_errors": errors.get("notes", []),
        "known": tags_of(Run.objects.visible_to(request.user).filter(project=run.project_id)),
        "limits": {"tags": MAX_TAGS, "tag": MAX_TAG, "notes": MAX_NOTES, "text": MAX_TAGS * (MAX_TAG + 2)},
    }
    return render(request, "runs/pages/run_labels.html", context, status=status)
