"""The new-run form: one run, or a sweep that compares algorithms over seeds; and the clone of a run."""

from __future__ import annotations

import uuid
from typing import Any, get_args
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from hacrl_web.errors import FieldError, FieldErrors
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.runs.forms import CAUTIONS, confirmed, confirmed_by, default_values, draw, parse, parse_seeds
from hacrl_web.runs.launch import launch, launch_sweep
from hacrl_web.runs.models import Run
from hacrl_web.runs.presets import presets
from hacrl_web.runs.stored_spec import stored_spec
from workers.spec_algorithm import SHARING, AlgorithmSpec

ALGORITHMS = get_args(AlgorithmSpec.model_fields["name"].annotation)
# Ticked from the start in a comparison; the others wait to be chosen.
COMPARED = ("hacpo", "gspo", "gspox2")
MAX_VALUE = 40  # characters of a setting in an address
ALGORITHM_WORDS = {
    "hacpo": "HACPO: agents learn from each other's verified rollouts",
    "gspo": "GSPO: each agent alone",
    "gspox2": "GSPOx2: each agent alone, with double rollouts and updates (the equal-cost baseline)",
    "grpo": "GRPO: each agent alone, with a ratio for each token",
    "naive_source": "Naive sharing: shared without HACPO's corrections, ratio against the source",
    "naive_learner": "Naive sharing, ratio against the learner's own start of the step",
}


@require_http_methods(["GET", "HEAD", "POST"])
def run_create(request: HttpRequest) -> HttpResponse:
    """Show the form, or queue what it says. What was wrong comes back beside its field, status 422, values kept."""
    if request.method != "POST":
        return _show(request, _first_values(request))
    try:
        if request.POST.get("compare"):
            return redirect(_launch_sweep(request))
        asked = parse(request.POST)
        asked.pop("algorithms", None)  # the sweep's boxes stay in the form, hidden
        run = launch(request.user, asked)
        messages.success(request, f"{run.name} is in the queue.")
        return redirect(run)
    except FieldErrors as refused:
        return _show(request, request.POST.dict(), refused.errors, refused.status)


def _launch_sweep(request: HttpRequest) -> Any:
    seeds = parse_seeds(request.POST.get("seeds", ""))
    asked = parse(request.POST)
    asked.pop("seed", None)  # those of the single run stay in the form, hidden
    asked.get("algorithm", {}).pop("name", None)
    asked.setdefault("algorithms", [])
    sweep = launch_sweep(request.user, asked | {"seeds": seeds})
    messages.success(request, f"{sweep.runs.count()} runs are in the queue.")
    return sweep


def _first_values(request: HttpRequest) -> dict[str, Any]:
    """What the form starts with: the run to clone, or what the address names."""
    values: dict[str, Any] = {"seeds": "0, 1, 2"}
    source = request.GET.get("clone", "")
    try:
        run = Run.objects.visible_to(request.user).filter(pk=uuid.UUID(source)).first() if source else None
    except ValueError:
        run = None
    if run is not None:
        values |= default_values(run.spec)
        values |= {"group": run.group_id, "benchmark": run.benchmark_id, "clone_of": run.name}
        other = _other_settings(request)
        confirmed_before = confirmed_by(stored_spec(run))
        # Another value is unconfirmed.
        values["confirmed"] = [one for one in confirmed_before if one.field not in other]
        values |= other
    for key in ("group", "benchmark"):
        if key in request.GET:
            values[key] = request.GET[key]
    return values


def _other_settings(request: HttpRequest) -> dict[str, str]:
    """Settings that the address gives a clone instead of the run's own; RunSpec judges them when the form is sent."""
    names = {f"algorithm.{name}" for name in AlgorithmSpec.model_fields}
    return {name: request.GET[name][:MAX_VALUE] for name in request.GET if name in names}


def _show(
    request: HttpRequest, values: dict[str, Any], errors: list[FieldError] | None = None, status: int = 200
) -> HttpResponse:
    posted = request.POST if request.method == "POST" else QueryDict()
    errors = errors or []
    asked = [error for error in errors if error.code in CAUTIONS]
    fields, sections, homeless = draw(values, [e for e in errors if e not in asked], asked)
    groups = AgentGroup.objects.visible_to(request.user).prefetch_related("agents__model")
    benchmarks = Benchmark.objects.visible_to(request.user)
    # With one of each there is nothing to choose.
    for key, rows in (("group", groups), ("benchmark", benchmarks)):
        if fields[key].value is None and len(rows) == 1:
            fields[key].value = rows[0].pk
    chosen = posted.getlist("algorithms") if posted else list(COMPARED)
    context = {
        "fields": fields,
        "sections": sections,
        "homeless": homeless,
        "num_errors": len(errors),
        "groups": groups,
        "benchmarks": benchmarks,
        "algorithms": [{"value": a, "label": ALGORITHM_WORDS.get(a, a), "chosen": a in chosen} for a in ALGORITHMS],
        "further": _further(values, posted, benchmarks),
        "compare": bool(posted.get("compare")) or request.GET.get("compare") == "1",
        "confirmed": confirmed(posted) if posted else values.get("confirmed", []),
        "clone_of": values.get("clone_of"),
        "presets": presets(),
        "form_data": {
            "presets": presets(),
            "groups": [_group_data(group) for group in groups],
            "sharing": list(SHARING),
        },
    }
    return render(request, "runs/run_form.html", context, status=status)


def _further(values: dict[str, Any], posted: QueryDict, benchmarks: Any) -> list[dict[str, Any]]:
    """The benchmarks that evaluations may ask besides, those ticked that were sent or that a cloned run asked."""
    path = "evaluation.benchmarks"
    ids = posted.getlist(path)
    names = {one.get("benchmark") for one in values.get(path) or () if not posted and isinstance(one, dict)}
    return [{"benchmark": one, "chosen": str(one.pk) in ids or one.name in names} for one in benchmarks]


def _group_data(group: AgentGroup) -> dict[str, Any]:
    agents = [{"name": a.name, "model": a.model.name, "position": a.position} for a in group.agents.all()]
    return {"id": group.pk, "name": group.name, "agents": agents}


@require_GET
def run_clone(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The new-run form, filled in with a run's settings; the query may give it others."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    response = redirect("runs:run_create")
    response["Location"] += "?" + urlencode({"clone": run.pk, **_other_settings(request)})
    return response
