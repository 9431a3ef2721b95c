"""The new-run form's buttons, a view for each: queue, save as a draft, estimate, download, copy the command."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from hacrl_web.accounts.roles.projects import for_members
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.runs.launch.again import retry
from hacrl_web.runs.launch.cost import estimate
from hacrl_web.runs.launch.form import NewRunQuery, RunForm, settings_in_address
from hacrl_web.runs.launch.launch import queue_draft
from hacrl_web.runs.launch.recommendation import recommended
from hacrl_web.runs.launch.tiles import tiles
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import MAX_ID, whole_number
from hacrl_web.web.streaming import download_text, file_slug

Button = Callable[[HttpRequest, RunForm], HttpResponse]


def _answer(request: HttpRequest, form: RunForm, status: int = 200) -> HttpResponse:
    return render(request, "runs/launch/run_form.html", form.context(), status=status)


def _or_form(button: Button) -> Callable[[HttpRequest], HttpResponse]:
    """The view of a button; when it raises FieldErrors the form comes back with the values and errors."""

    @require_POST
    @wraps(button)
    def view(request: HttpRequest) -> HttpResponse:
        form = RunForm.posted(request.user, request.POST)
        try:
            return button(request, form)
        except FieldErrors as refused:
            form.refuse(refused)
            return _answer(request, form, refused.status)

    return view


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def run_create(request: HttpRequest) -> HttpResponse:
    """The form, and its button that queues."""
    if request.method == "POST":
        return _queue(request)
    return _answer(request, RunForm.of_address(request.user, request.GET))


@_or_form
def _queue(request: HttpRequest, form: RunForm) -> HttpResponse:
    row = form.submit(then_queue=True)
    text = f"{row.name} queued."
    if isinstance(row, Sweep):
        text = "The search begins in a moment." if row.search_state else f"{row.runs.count()} runs are in the queue."
    messages.success(request, text, extra_tags="" if isinstance(row, Sweep) else State.QUEUED)
    return redirect(row)


@_or_form
def run_save(request: HttpRequest, form: RunForm) -> HttpResponse:
    """Save a run or a sweep as a draft: a new one, or the one that the form edits."""
    row = form.submit(then_queue=False)
    messages.success(request, f"{row.name} is saved as a draft: nothing trains until it is queued.")
    return redirect(row)


@_or_form
def run_cost(request: HttpRequest, form: RunForm) -> HttpResponse:
    """The form with its cost, for browsers without scripts."""
    form.cost = estimate(form.user, form.unconfirmed, form.kind)
    return _answer(request, form)


@_or_form
def run_download(request: HttpRequest, form: RunForm) -> HttpResponse:
    """The settings of a run or of a sweep as a file that is named after it."""
    return download_text(form.yaml(), f"{file_slug(request.POST.get('name', '')) or 'run'}.yaml", "application/yaml")


@require_POST
def run_estimate(request: HttpRequest) -> JsonResponse:
    """The cost of what the form describes, as JSON for its side card.

    Where a check fails: its errors, and the cost as far as it does not depend on what was refused. Status 200 too: the
    answer to what someone is still filling in, which a browser must not report as a failed request.
    """
    form = RunForm.posted(request.user, request.POST)
    try:
        return JsonResponse({"cost": asdict(estimate(form.user, form.unconfirmed, form.kind))})
    except FieldErrors as refused:
        cost = form.partial_cost()
        body = {"errors": [error.as_dict() for error in refused.errors], "cost": asdict(cost) if cost else None}
        return JsonResponse(body)


@require_POST
def run_command(request: HttpRequest) -> JsonResponse:
    """The command line that launches what the form describes; or its errors, status 422."""
    try:
        text = RunForm.posted(request.user, request.POST).yaml()
    except FieldErrors as refused:
        return JsonResponse({"errors": [error.as_dict() for error in refused.errors]}, status=refused.status)
    # Quoted: the shell takes the lines as they are. In YAML only keys and dashes begin a line, so that none is EOF.
    return JsonResponse({"command": f"./hacrl launch - <<'EOF'\n{text}EOF\n"})


@for_members
@require_GET
def run_preset_memory(request: HttpRequest) -> JsonResponse:
    """What the presets of machines need with the agents of a group, and what is recommended for them.

    Nothing for an unknown group.
    """
    group = _visible_or_none(AgentGroup, request, "group")
    agents = list(group.agents.select_related("model")) if group else []
    benchmark = _visible_or_none(Benchmark, request, "benchmark")
    best = recommended(agents, benchmark)
    rows = tiles(request.user, group, benchmark, agents) if group and agents else []
    return JsonResponse({"presets": rows, "recommended": asdict(best) if best else None})


def _visible_or_none(model: Any, request: HttpRequest, name: str) -> Any:
    """The row that the address names, if the user may see it."""
    pk = whole_number(request.GET.get(name, ""), MAX_ID)
    return None if pk is None else model.objects.visible_to(request.user).filter(pk=pk).first()


@for_members
@require_GET
def run_clone(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """To the form with a run's settings; the address may replace some, or ask for the run's ablations."""
    query = {"clone": visible_run(request, run_id).pk, **settings_in_address(request.GET)}
    form_query = NewRunQuery.read(request.GET)
    query |= form_query.model_dump(include={"ablate", "agents"}, exclude_defaults=True)
    return redirect(f"{reverse('runs:run_create')}?{urlencode(query)}")


@require_POST
def run_retry(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """A new run with the same settings."""
    run = visible_run(request, run_id)
    try:
        return redirect(retry(request.user, run))
    except FieldErrors as refused:
        if not Run.objects.filter(pk=run.pk).exists():
            raise  # it was deleted meanwhile: there is no page to say so
        messages.error(request, refused.text)
        return redirect(run)


@require_POST
def run_queue_draft(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Queue a draft. `confirm`: the codes of the ticked cautions."""
    run = visible_run(request, run_id)
    try:
        queue_draft(request.user, run, request.POST.getlist("confirm"))
        messages.success(request, f"{run.name} queued.", extra_tags=State.QUEUED)
    except FieldErrors as refused:
        messages.error(request, "Nothing was changed. " + refused.text)
    return redirect(run)
