"""The new-run form: one run, or a sweep that compares variants over seeds; the clone of a run, and its ablations."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from hacrl_web.accounts.projects import for_members
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.runs.launch.cost import Cost, cost_of
from hacrl_web.runs.launch.drafts import change_draft
from hacrl_web.runs.launch.form import (
    CAUTIONS,
    GRID_FIELDS,
    FormField,
    confirmed,
    confirmed_by,
    default_values,
    draw,
    parse_form,
    parse_seeds,
)
from hacrl_web.runs.launch.launch import launch
from hacrl_web.runs.launch.plan import plan_run
from hacrl_web.runs.launch.presets import presets
from hacrl_web.runs.launch.settings_import import read_settings
from hacrl_web.runs.launch.variants import ABLATIONS, HACPO, MAX_SWEEP_RUNS, idle_ablations
from hacrl_web.runs.models import Run, State
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.runs.sweeps.plan import plan_sweep
from hacrl_web.runs.sweeps.sweeps import MAX_NAME, launch_sweep
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.settings_file import MAX_BYTES
from hacrl_web.web.streaming import download_text
from workers.contract.spec.algorithm import SHARING, AlgorithmSpec
from workers.contract.spec.yaml_files import to_yaml

ALGORITHMS = get_args(AlgorithmSpec.model_fields["name"].annotation)
# Ticked from the start in a comparison; the others wait to be chosen.
COMPARED = ("hacpo", "gspo", "gspox2")
ABLATION_SEEDS = 3
CLONE = " (clone)"
MAX_VALUE = 40  # characters of a setting in an address
ALGORITHM_WORDS = {
    "hacpo": "HACPO: agents learn from each other's verified rollouts",
    "gspo": "GSPO: each agent alone",
    "gspox2": "GSPOx2: each agent alone, with double rollouts and updates (the equal-cost baseline)",
    "grpo": "GRPO: each agent alone, with a ratio for each token",
    "naive_source": "Naive sharing: shared without HACPO's corrections, ratio against the source",
    "naive_learner": "Naive sharing, ratio against the learner's own start of the step",
}


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def run_create(request: HttpRequest) -> HttpResponse:
    """Show the form, or queue what it says, or keep it as a draft, or hand it out as YAML.

    What was wrong comes back beside its field, status 422, values kept.
    """
    if request.method != "POST":
        return _show(request, _first_values(request))
    values = request.POST.dict()
    try:
        if request.POST.get("estimate"):
            return _show(request, values, cost=_estimate(request))
        if request.POST.get("download"):
            return _as_yaml(request)
        if request.POST.get("save"):
            return _save(request)
        if request.POST.get("compare"):
            sweep = launch_sweep(request.user, _sweep_request(request.POST))
            messages.success(request, f"{sweep.runs.count()} runs are in the queue.")
            return redirect(sweep)
        settings = _run_request(request.POST)
        draft = _draft(request.user, request.POST.get("draft", ""))
        run = change_draft(request.user, draft, settings, then_queue=True) if draft else launch(request.user, settings)
        messages.success(request, f"{run.name} is in the queue.")
        return redirect(run)
    except FieldErrors as refused:
        if refused.status in (404, 409):  # the draft is none any more: sent again, the form makes a new run
            values.pop("draft", None)
        return _show(request, values, refused.errors, refused.status)


def _save(request: HttpRequest) -> HttpResponse:
    """Keep one run as a draft: a new one, or the one that the form has open. Error: FieldErrors."""
    _require_one(request, "save")
    settings = _run_request(request.POST) | {"draft": True}
    draft = _draft(request.user, request.POST.get("draft", ""))
    run = change_draft(request.user, draft, settings) if draft else launch(request.user, settings)
    messages.success(request, f"{run.name} is saved as a draft: nobody trains it until it is queued.")
    return redirect(run)


def _draft(user: Any, text: str) -> Run | None:
    """The draft that the form has open, None where it has none. Error: FieldErrors (404), where it is gone."""
    if not text:
        return None
    run = Run.objects.visible_to(user).select_related("project").filter(pk=_id(text)).first()
    if run is None:
        message = "The draft was deleted. Sent again, the form makes a new run."
        raise FieldErrors([FieldError("not_found", message, None)], 404)
    return run


@require_POST
def run_import(request: HttpRequest) -> HttpResponse:
    """The form with the settings of a file in it; nothing is queued. A file that cannot be read: 422 and why."""
    values = _first_values(request)
    file = request.FILES.get("file")
    try:
        data = file.read(MAX_BYTES + 1) if file is not None else b""  # a longer one is refused by its length
        values |= read_settings(data)
    except FieldErrors as refused:
        return _show(request, values, refused.errors, refused.status, is_sent=False)
    messages.info(request, "The file's settings stand in the form. Choose the agent group and the benchmark.")
    return _show(request, values, is_sent=False)


@require_POST
def run_estimate(request: HttpRequest) -> JsonResponse:
    """What the form as it stands would cost, for its side card; or what is wrong with it, status 422."""
    try:
        return JsonResponse({"cost": _estimate(request).as_dict()})
    except FieldErrors as refused:
        return JsonResponse({"errors": [error.as_dict() for error in refused.errors]}, status=refused.status)


@require_POST
def run_command(request: HttpRequest) -> JsonResponse:
    """The command line that launches what the form says, queueing nothing; or what is wrong with it, status 422."""
    try:
        text = _yaml(request)
    except FieldErrors as refused:
        return JsonResponse({"errors": [error.as_dict() for error in refused.errors]}, status=refused.status)
    codes = sorted({one.code for one in confirmed(request.POST)})
    options = "".join(f" --confirm {code}" for code in codes)
    # Quoted: the shell takes the lines as they are. In YAML only keys begin a line, so that none is EOF.
    return JsonResponse({"command": f"hacrl launch -{options} <<'EOF'\n{text}EOF\n"})


def _as_yaml(request: HttpRequest) -> HttpResponse:
    """One run's settings as a file, queueing nothing. Error: FieldErrors."""
    return download_text(_yaml(request), "run.yaml", "application/yaml")


def _yaml(request: HttpRequest) -> str:
    """Error: FieldErrors."""
    _require_one(request, "download")
    spec, _ = plan_run(request.user, _run_request(request.POST) | {"confirm": list(CAUTIONS)})
    return to_yaml(spec)


def _require_one(request: HttpRequest, what: str) -> None:
    """Error: FieldErrors for a sweep."""
    if request.POST.get("compare"):
        message = f"A sweep is many runs: close Compare to {what} the settings of one."
        raise FieldErrors([FieldError("invalid", message, None)])


def _estimate(request: HttpRequest) -> Cost:
    """Error: FieldErrors. Cautions are asked about when the form is sent, not while it is filled in."""
    everything = {"confirm": list(CAUTIONS)}
    if request.POST.get("compare"):
        plan = plan_sweep(request.user, _sweep_request(request.POST) | everything)
        return cost_of(request.user, plan.specs, *plan.material.pair)
    spec, material = plan_run(request.user, _run_request(request.POST) | everything)
    return cost_of(request.user, [spec], *material.pair)


def _run_request(post: QueryDict) -> dict[str, Any]:
    """What stands under the closed Compare switch stays in the form and does not count."""
    return {key: value for key, value in parse_form(post).items() if key not in ("algorithms", "ablations", "grid")}


def _sweep_request(post: QueryDict) -> dict[str, Any]:
    """The algorithm, the seed and the origin of the single run stay in the form and do not count."""
    seeds = parse_seeds(post.get("seeds", ""))
    settings = parse_form(post)
    for key in ("seed", "cloned_from"):
        settings.pop(key, None)
    settings.get("algorithm", {}).pop("name", None)
    return {"algorithms": []} | settings | {"seeds": seeds}


@dataclass(frozen=True)
class TickBox:
    """A box to tick."""

    value: str
    label: str
    help: str
    chosen: bool


def _first_values(request: HttpRequest) -> dict[str, Any]:
    """What the form starts with: the run to clone or to ablate, or what the address names."""
    values: dict[str, Any] = {"seeds": "0, 1, 2", "compare": request.GET.get("compare") == "1"}
    if (draft := _named(request, "draft")) is not None and draft.state == State.DRAFT:
        values |= default_values(draft.spec)
        values |= {"group": draft.group_id, "benchmark": draft.benchmark_id, "cloned_from": draft.cloned_from_id or ""}
        return values | {"name": draft.name, "draft": draft.pk}
    if (run := _named(request, "clone")) is not None:
        values |= default_values(run.spec)
        values |= {"group": run.group_id, "benchmark": run.benchmark_id, "clone_of": run.name, "cloned_from": run.pk}
        values["name"] = _clone_name(run.name)
        other = _other_settings(request)
        confirmed_before = confirmed_by(stored_spec(run))
        # Another value is unconfirmed, and so is all of a draft.
        is_new = run.state == State.DRAFT
        values["confirmed"] = [one for one in confirmed_before if one.field not in other and not is_new]
        values |= other
        if request.GET.get("ablate") == "1" and run.algorithm == HACPO:
            values |= _ablation_of(run)
    for key in ("group", "benchmark"):
        if key in request.GET:
            values[key] = request.GET[key]
    return values


def _named(request: HttpRequest, key: str) -> Run | None:
    """The run whose id the address has under this key."""
    return Run.objects.visible_to(request.user).filter(pk=_id(request.GET.get(key, ""))).first()


def _id(text: Any) -> uuid.UUID | None:
    """The id of a run; None of what is none."""
    try:
        return uuid.UUID(str(text))
    except ValueError:
        return None


def _clone_name(name: str) -> str:
    """Once, however often it is cloned on, and within the length of a name."""
    return name.removesuffix(CLONE)[: MAX_NAME - len(CLONE)] + CLONE


def _ablation_of(run: Run) -> dict[str, Any]:
    """The sweep that takes a HACPO run apart: itself, and without each of its parts, over three seeds."""
    idle = idle_ablations(stored_spec(run).algorithm)
    return {
        "name": f"Ablation of {run.name}"[:120],
        "compare": True,
        "algorithms": [HACPO],
        "ablations": [key for key in ABLATIONS if key not in idle],
        "seeds": ", ".join(str(run.seed + number) for number in range(ABLATION_SEEDS)),
    }


def _other_settings(request: HttpRequest) -> dict[str, str]:
    """Settings that the address gives a clone instead of the run's own; RunSpec judges them when the form is sent."""
    names = {f"algorithm.{name}" for name in AlgorithmSpec.model_fields}
    return {name: request.GET[name][:MAX_VALUE] for name in request.GET if name in names}


def _show(
    request: HttpRequest,
    values: dict[str, Any],
    errors: list[FieldError] | None = None,
    status: int = 200,
    cost: Cost | None = None,
    *,
    is_sent: bool | None = None,
) -> HttpResponse:
    """is_sent: the values are what the form sent, as with every POST that brings no file."""
    posted = request.POST if (request.method == "POST" if is_sent is None else is_sent) else None
    errors = errors or []
    cautions = [error for error in errors if error.code in CAUTIONS]
    fields, sections, homeless = draw(values, [e for e in errors if e not in cautions], cautions)
    groups, benchmarks = _choices(request.user, values.get("group"))
    # With one of each there is nothing to choose.
    for key, rows in (("group", groups), ("benchmark", benchmarks)):
        if fields[key].value is None and len(rows) == 1:
            fields[key].value = rows[0].pk
    context = {
        "fields": fields,
        "sections": sections,
        "homeless": homeless,
        "num_errors": len(errors),
        "groups": groups,
        "benchmarks": benchmarks,
        "further": _further(values, posted, benchmarks),
        "compare": bool(posted.get("compare")) if posted is not None else values["compare"],
        **_sweep_controls(fields, values, posted),
        "confirmed": confirmed(posted) if posted is not None else values.get("confirmed", []),
        "clone_of": values.get("clone_of"),
        "cloned_from": values.get("cloned_from", ""),
        "draft": _id(values.get("draft", "")),
        "cost": cost,
        "presets": presets(),
        "form_data": {
            "presets": presets(),
            "groups": [_group_data(group) for group in groups],
            "sharing": list(SHARING),
        },
    }
    return render(request, "runs/run_form.html", context, status=status)


def _choices(user: Any, selection: Any) -> tuple[QuerySet[AgentGroup], QuerySet[Benchmark]]:
    """Groups and benchmarks of one project: that of the chosen group (of a run to clone), else the one looked at."""
    visible = AgentGroup.objects.visible_to(user)
    is_id = str(selection).isascii() and str(selection).isdigit() and len(str(selection)) < 19
    project = visible.filter(pk=int(selection)).values_list("project", flat=True).first() if is_id else None
    if project is None:
        groups, benchmarks = AgentGroup.objects.listed_for(user), Benchmark.objects.listed_for(user)
    else:
        groups = visible.filter(project=project)
        benchmarks = Benchmark.objects.visible_to(user).filter(project=project)
    return groups.prefetch_related("agents__model"), benchmarks


def _further(values: dict[str, Any], posted: QueryDict | None, benchmarks: Any) -> list[dict[str, Any]]:
    """The benchmarks that evaluations may ask besides, those ticked that were sent or that a cloned run asked."""
    path = "evaluation.benchmarks"
    ids = posted.getlist(path) if posted is not None else []
    names = {one.get("benchmark") for one in values.get(path) or () if posted is None and isinstance(one, dict)}
    return [{"benchmark": one, "chosen": str(one.pk) in ids or one.name in names} for one in benchmarks]


def _sweep_controls(fields: dict[str, FormField], values: dict[str, Any], posted: QueryDict | None) -> dict[str, Any]:
    """What stands under the Compare switch."""

    def chosen(key: str, otherwise: tuple[str, ...]) -> list[str]:
        return posted.getlist(key) if posted is not None else list(values.get(key, otherwise))

    algorithms, ablations = chosen("algorithms", COMPARED), chosen("ablations", ())
    grid = [fields[path] for path in GRID_FIELDS]
    return {
        "algorithms": [TickBox(a, ALGORITHM_WORDS.get(a, a), "", a in algorithms) for a in ALGORITHMS],
        "ablations": [TickBox(a.key, a.label, a.sentence, a.key in ablations) for a in ABLATIONS.values()],
        "grid": grid,
        "is_grid_open": any(field.value or field.errors for field in grid),
        "is_ablation_open": bool(ablations or fields["ablations"].errors),
        "max_runs": MAX_SWEEP_RUNS,
    }


def _group_data(group: AgentGroup) -> dict[str, Any]:
    agents = [
        {"name": a.name, "model": a.model.name, "position": a.position, "context": a.model.context_length}
        for a in group.agents.all()
    ]
    return {"id": group.pk, "name": group.name, "agents": agents}


@for_members
@require_GET
def run_clone(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The new-run form, filled in with a run's settings; the query may give it others, or ask for its ablations."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    query = {"clone": run.pk, **_other_settings(request)}
    if request.GET.get("ablate") == "1":
        query["ablate"] = "1"
    response = redirect("runs:run_create")
    response["Location"] += "?" + urlencode(query)
    return response
