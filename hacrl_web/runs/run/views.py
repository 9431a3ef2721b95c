"""Pages of one run: its Overview and log, its metrics as CSV, its tags and notes."""

from __future__ import annotations

import uuid
from itertools import chain
from typing import Annotated, Literal

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods
from pydantic import Field

from hacrl_web.runs.models import Run, State
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.run.header import MAX_SPEED, header, replay, run_or_404
from hacrl_web.runs.run.labels import MAX_NOTES, MAX_TAG, MAX_TAGS, set_labels, split_tags, tags_of
from hacrl_web.runs.storage.stored_spec import recorded_spec
from hacrl_web.runs.telemetry.metric_series import metric_rows
from hacrl_web.runs.telemetry.unmeasured import unmeasured
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.page_query import PageQuery, Whole
from hacrl_web.web.streaming import download_csv


class TabQuery(PageQuery):
    """The tab of a run's page; config and events have pages now.

    replay: the speed at which an ended run is played back, as a multiple of its own; at: from the end of which step.
    """

    tab: Literal["overview", "logs", "config", "events"] = "overview"
    replay: Annotated[Whole, Field(le=MAX_SPEED)] = 0
    at: Whole | None = None


@require_GET
def run_detail(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """One run; charts and logs are filled by the page's socket, from the first event on."""
    run = run_or_404(request, run_id)
    query = TabQuery.read(request.GET)
    tab = query.tab
    if tab in ("config", "events"):
        return redirect(f"insight:run_{tab}", run_id)
    if run.is_evaluation_only and tab != "logs":
        return redirect("insight:run_evaluations", run_id)
    spec = recorded_spec(run)
    context = header(run) | {
        "tab": tab,
        "page_data": {
            "agents": run.agent_names,
            "unmeasured": unmeasured(run, spec, run.rollout_engine),
            "further": sorted(run.further_benchmarks),  # their evaluations are on no chart
            "rewards": [*spec.rewards.weights] if spec.rewards.terms else [],
            "training_sets": [one.benchmark for one in spec.training_data] if spec.training.benchmarks else [],
            "score_word": run.score_word,
            "shares": spec.algorithm.shares_rollouts and len(spec.agents) > 1,
            "records": spec.telemetry.rollout_interval > 0,
        },
    }
    context |= replay(run, query.replay, query.at)
    if not run.step and not run.is_terminal and run.state != State.DRAFT:
        context["starting"] = {"downloads": any(not agent.model.startswith("/") for agent in spec.agents)}
    return render(request, "runs/run/run_detail.html", context)


@require_GET
def metrics_csv(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """Every number that the charts can draw, one per line."""
    run = visible_run(request, run_id)
    heading = ("step", "agent", "source", "metric", "value")
    return download_csv(request, chain([heading], metric_rows(run)), f"metrics-{run.pk}.csv")


@require_http_methods(["GET", "HEAD", "POST"])
def run_labels(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Tags and notes of a run, for members to change and for viewers to read."""
    run = visible_run(request, run_id)
    tags, notes = ", ".join(run.tag_list), run.notes
    errors: list[FieldError] = []
    status = 200
    if request.method == "POST":
        tags, notes = request.POST.get("tags", ""), request.POST.get("notes", "")
        try:
            set_labels(run, split_tags(tags), notes)
            messages.info(request, "Tags and notes are saved.")
            return redirect(run)
        except FieldErrors as refused:
            errors, status = refused.errors, refused.status
    context = {
        "run": run,
        "tags": tags,
        "notes": notes,
        "tag_errors": [error.message for error in errors if error.field == "tags"],
        "note_errors": [error.message for error in errors if error.field == "notes"],
        "known": tags_of(Run.objects.visible_to(request.user).filter(project=run.project_id)),
        "limits": {"tags": MAX_TAGS, "tag": MAX_TAG, "notes": MAX_NOTES, "text": MAX_TAGS * (MAX_TAG + 2)},
    }
    return render(request, "runs/run/run_labels.html", context, status=status)
