"""The new-run form's buttons, a view for each: queue, save as a draft, estimate, download, copy the command."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from hacrl_web.accounts.roles.projects import for_members
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.runs.launch.again import retry
from hacrl_web.runs.launch.cost import Cost, estimate, partial_estimate
from hacrl_web.runs.launch.form import CAUTIONS, confirmed, parse_form, split_list
from hacrl_web.runs.launch.form_page import (
    NewRunQuery,
    first_values,
    left_errors,
    posted_values,
    render_form,
    settings_in_address,
)
from hacrl_web.runs.launch.launch import change_draft, launch, launch_sweep, queue_draft
from hacrl_web.runs.launch.plan import named_request, plan_of
from hacrl_web.runs.launch.presets import memory_of_presets
from hacrl_web.runs.launch.recommendation import recommended
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.variants.parts import SWEEP_KEYS
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import MAX_ID, uuid_or_none, whole_number
from hacrl_web.web.streaming import download_text, file_slug
from workers.contract.spec.run import CONFIRMED, dump_yaml

View = Callable[[HttpRequest], HttpResponse]


def _or_form(view: View) -> View:
    """The view of a button; when it raises FieldErrors the form comes back with the values and errors."""

    @wraps(view)
    def button(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except FieldErrors as refused:
            values = posted_values(request.POST)
            if refused.status in (404, 409):  # no longer a draft: sent again, the form makes a new run
                values.pop("draft", None)
                values.pop("draft_sweep", None)
            return render_form(request, values, refused.errors, refused.status)

    return button


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def run_create(request: HttpRequest) -> HttpResponse:
    """The form, and its button that queues."""
    if request.method == "POST":
        return _queue(request)
    values = first_values(request)
    return render_form(request, values, left_errors(values))


@_or_form
def _queue(request: HttpRequest) -> HttpResponse:
    row = _submit(request, then_queue=True)
    text = f"{row.name} queued."
    if isinstance(row, Sweep):
        text = "The search begins in a moment." if row.search_state else f"{row.runs.count()} runs are in the queue."
    messages.success(request, text, extra_tags="" if isinstance(row, Sweep) else State.QUEUED)
    return redirect(row)


@require_POST
@_or_form
def run_save(request: HttpRequest) -> HttpResponse:
    """Save a run or a sweep as a draft: a new one, or the one that the form edits."""
    row = _submit(request, then_queue=False)
    messages.success(request, f"{row.name} is saved as a draft: nothing trains until it is queued.")
    return redirect(row)


def _submit(request: HttpRequest, *, then_queue: bool) -> Run | Sweep:
    """The new run, or the draft that the form edits, with its settings; a sweep where Compare is ticked.

    Error: FieldErrors.
    """
    settings, draft = _request_of(request.POST), _edited_draft(request)
    if draft is None:
        start = launch_sweep if request.POST.get("compare") else launch
        return start(request.user, settings if then_queue else settings | {"draft": True})
    if isinstance(draft, Sweep):
        return change_draft(request.user, draft, settings, then_queue=then_queue)
    return change_draft(request.user, draft, settings, then_queue=then_queue)


@require_POST
@_or_form
def run_cost(request: HttpRequest) -> HttpResponse:
    """The form with its cost, for browsers without scripts."""
    return render_form(request, posted_values(request.POST), cost=_estimate(request))


@require_POST
@_or_form
def run_download(request: HttpRequest) -> HttpResponse:
    """The settings of a run or of a sweep as a file that is named after it."""
    text = _yaml(request)
    return download_text(text, f"{file_slug(request.POST.get('name', '')) or 'run'}.yaml", "application/yaml")


@require_POST
def run_estimate(request: HttpRequest) -> JsonResponse:
    """The cost of what the form describes, as JSON for its side card.

    Where a check fails: its errors, and the cost as far as it does not depend on what was refused. Status 200 too: the
    answer to what someone is still filling in, which a browser must not report as a failed request.
    """
    try:
        return JsonResponse({"cost": asdict(_estimate(request))})
    except FieldErrors as refused:
        cost = _partial_estimate(request)
        body = {"errors": [error.as_dict() for error in refused.errors], "cost": asdict(cost) if cost else None}
        return JsonResponse(body)


@for_members
@require_GET
def run_preset_memory(request: HttpRequest) -> JsonResponse:
    """What the presets of machines need with the agents of a group, and what is recommended for them.

    Nothing for an unknown group.
    """
    group = _visible_or_none(AgentGroup, request, "group")
    agents = list(group.agents.select_related("model")) if group else []
    best = recommended(agents, _visible_or_none(Benchmark, request, "benchmark"))
    rows = [asdict(one) for one in memory_of_presets(agents)]
    return JsonResponse({"presets": rows, "recommended": asdict(best) if best else None})


def _visible_or_none(model: Any, request: HttpRequest, name: str) -> Any:
    """The row that the address names, if the user may see it."""
    pk = whole_number(request.GET.get(name, ""), MAX_ID)
    return None if pk is None else model.objects.visible_to(request.user).filter(pk=pk).first()


@require_POST
def run_command(request: HttpRequest) -> JsonResponse:
    """The command line that launches what the form describes; or its errors, status 422."""
    try:
        text = _yaml(request)
    except FieldErrors as refused:
        return JsonResponse({"errors": [error.as_dict() for error in refused.errors]}, status=refused.status)
    # Quoted: the shell takes the lines as they are. In YAML only keys and dashes begin a line, so that none is EOF.
    return JsonResponse({"command": f"./hacrl launch - <<'EOF'\n{text}EOF\n"})


@for_members
@require_GET
def run_clone(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """To the form with a run's settings; the address may replace some, or ask for the run's ablations."""
    query = {"clone": visible_run(request, run_id).pk, **settings_in_address(request.GET)}
    form_query = NewRunQuery.read(request.GET)
    query |= form_query.model_dump(include={"ablate", "agents"}, exclude_defaults=True)
    return redirect(f"{reverse('runs:run_create')}?{urlencode(query)}")


def _edited_draft(request: HttpRequest) -> Run | Sweep | None:
    """The draft that the form edits, if any. Error: FieldErrors (404) where it was deleted."""
    compares = bool(request.POST.get("compare"))
    if not (text := request.POST.get("draft_sweep" if compares else "draft", "")):
        return None
    rows: Any = (Sweep if compares else Run).objects.visible_to(request.user).select_related("project")
    draft: Run | Sweep | None = rows.filter(pk=whole_number(text, MAX_ID) if compares else uuid_or_none(text)).first()
    if draft is None:
        message = "The draft was deleted. Sent again, the form makes a new one."
        raise FieldErrors.single("not_found", message, status=404)
    return draft


def _yaml(request: HttpRequest) -> str:
    """The settings, and the cautions that were confirmed, so that the file can be launched. Error: FieldErrors."""
    settings = _request_of(request.POST)
    if request.POST.get("compare"):
        return dump_yaml(named_request(plan_of(request.user, settings, Sweep)))
    (spec,) = plan_of(request.user, settings | {"confirm": list(CAUTIONS)}, Run).specs
    codes = sorted({one.code for one in spec.cautions()} & {one.code for one in confirmed(request.POST)})
    return spec.to_yaml() + (dump_yaml({CONFIRMED: codes}) if codes else "")


def _estimate(request: HttpRequest) -> Cost:
    """Cautions need no confirmation yet. Error: FieldErrors."""
    settings = _request_of(request.POST) | {"confirm": list(CAUTIONS)}
    return estimate(request.user, settings, Sweep if request.POST.get("compare") else Run)


def _partial_estimate(request: HttpRequest) -> Cost | None:
    """The cost of a run whose form is refused; None where too little of it can be read."""
    if request.POST.get("compare"):
        return None
    try:
        return partial_estimate(request.user, _request_of(request.POST) | {"confirm": list(CAUTIONS)})
    except FieldErrors:
        return None


def _request_of(post: QueryDict) -> dict[str, Any]:
    """The launch request of a run; where Compare is ticked of a sweep, without what only one run has.

    Error: FieldErrors.
    """
    if not post.get("compare"):
        return {key: value for key, value in parse_form(post).items() if key not in SWEEP_KEYS}
    settings = {key: value for key, value in parse_form(post).items() if key not in ("seed", "cloned_from")}
    settings.get("algorithm", {}).pop("name", None)
    return {"algorithms": []} | settings | {"seeds": split_list(post.get("seeds", ""))}


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
