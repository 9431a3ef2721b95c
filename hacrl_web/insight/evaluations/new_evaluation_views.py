"""The form that starts an evaluation: which models, which benchmarks, how many samples. Parse, call, render."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from hacrl_web.accounts.projects import for_members
from hacrl_web.insight.evaluations.new_evaluation import KEYS, find_run, launch_evaluation, visible_row
from hacrl_web.registry.models import MAX_AGENTS, AgentGroup, Benchmark, LanguageModel
from hacrl_web.web.errors import FieldError, FieldErrors
from workers.contract.spec.sections import RolloutSpec

LISTS = ("models", "benchmarks")
MAX_SHOWN = 500
# Name, label, what it means, unit.
NUMBERS = (
    ("num_samples", "Samples per question", "k of avg@k, pass@k, maj@k and best@k.", ""),
    ("temperature", "Temperature", "0: greedy; more than one sample needs more than 0.", ""),
    (
        "max_completion_length",
        "Response tokens at most",
        "As in training, for scores to be compared with it.",
        "tokens",
    ),
    ("max_questions", "Questions of each benchmark at most", "0: all that are held out.", "questions"),
    ("seed", "Seed", "Of sampling.", ""),
)
DEFAULTS = {"num_samples": "1", "temperature": "0", "max_questions": "0", "seed": "0"}


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def evaluate(request: HttpRequest) -> HttpResponse:
    """Show the form, filled in from the address (models, group, or run and step), or queue what it says."""
    if request.method != "POST":
        return _show(request, _first_values(request))
    fields: dict[str, Any] = {
        key: request.POST[key].strip() for key in KEYS if key in request.POST and key not in LISTS
    }
    fields |= {key: request.POST.getlist(key) for key in LISTS}
    try:
        if any("\x00" in value for value in fields.values() if isinstance(value, str)):
            raise FieldErrors([FieldError("invalid_text", "A text holds a NUL character.", None)])
        run = launch_evaluation(request.user, fields)
    except FieldErrors as refused:
        return _show(request, fields, refused.errors, refused.status)
    messages.success(request, f"{run.name} is in the queue.")
    return redirect(run)


def _first_values(request: HttpRequest) -> dict[str, Any]:
    query = request.GET
    values: dict[str, Any] = DEFAULTS | {key: query[key][:200] for key in ("group", "run", "step") if key in query}
    values |= {key: query.getlist(key) for key in LISTS}
    run = find_run(request.user, values["run"]) if "run" in values else None
    if run is not None:
        values["max_completion_length"] = run.spec.get("rollout", {}).get("max_completion_length")
        values["benchmarks"] = values["benchmarks"] or [str(run.benchmark_id or "")]
    return values


def _show(
    request: HttpRequest, values: dict[str, Any], errors: list[FieldError] | None = None, status: int = 200
) -> HttpResponse:
    errors = errors or []
    by_field: dict[str, list[str]] = {}
    for error in errors:
        by_field.setdefault(error.field or "", []).append(error.message)
    group = visible_row(AgentGroup, request.user, values.get("group"))
    run = find_run(request.user, values["run"]) if values.get("run") else None
    models, benchmarks = _choices(request.user, values, group or run)
    usual = RolloutSpec.model_fields["max_completion_length"].default
    names = {*(name for name, *_ in NUMBERS), *LISTS, "name"}
    context = {
        "values": values,
        "models": [{"model": one, "chosen": str(one.pk) in values["models"]} for one in models],
        "benchmarks": [{"benchmark": one, "chosen": str(one.pk) in values["benchmarks"]} for one in benchmarks],
        "group": group,
        "run": run,
        "numbers": [
            {"name": name, "label": label, "help": help_text, "unit": unit, "errors": by_field.get(name, [])}
            | {"value": usual if values.get(name) is None else values[name]}
            for name, label, help_text, unit in NUMBERS
        ],
        "errors_of": {name: by_field.get(name, []) for name in (*LISTS, "name")},
        "homeless": [message for name, messages in by_field.items() if name not in names for message in messages],
        "num_errors": len(errors),
        "most": MAX_AGENTS,
    }
    return render(request, "insight/evaluations/new_evaluation.html", context, status=status)


def _choices(user: Any, values: dict[str, Any], origin: Any) -> tuple[Any, Any]:
    """Models and benchmarks of one project: that of what the form was opened with, else the one that is looked at."""
    for kind, key in ((LanguageModel, "models"), (Benchmark, "benchmarks")):
        origin = origin or visible_row(kind, user, next(iter(values[key]), None))
    models, benchmarks = LanguageModel.objects.listed_for(user), Benchmark.objects.listed_for(user)
    if origin is not None:
        models = LanguageModel.objects.visible_to(user).filter(project=origin.project_id)
        benchmarks = Benchmark.objects.visible_to(user).filter(project=origin.project_id)
    return models[:MAX_SHOWN], benchmarks[:MAX_SHOWN]
