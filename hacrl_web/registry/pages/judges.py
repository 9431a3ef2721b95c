"""Pages of judges: the list, adding one, and its own page with a try-out. Views parse, call and render."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from hacrl_web.accounts.projects import for_members
from hacrl_web.registry import judges
from hacrl_web.registry.models import Benchmark, Judge
from hacrl_web.registry.pages.models_and_groups import LIST_SIZE, require_page
from hacrl_web.registry.pages.reward_functions import MAX_BENCHMARKS
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import MAX_ID, page_of, whole_number
from workers.contract.spec.judge import DEFAULT_COMPARISON, DEFAULT_RUBRIC, JUDGE_KINDS, JudgeSettings

# The fields of the form in their groups.
GROUPS = {
    "Model": ("kind", "address", "model", "device"),
    "What it is asked": ("mode", "rubric", "lowest", "highest", "scale", "label", "max_tokens", "max_input_tokens"),
    "Limits and price": (
        *("time_limit_s", "concurrency", "retries", "batch_size", "price_input", "price_output", "budget"),
    ),
}


@require_safe
def judge_list(request: HttpRequest) -> HttpResponse:
    rows = Judge.objects.listed_for(request.user).select_related("owner")
    return render(request, "registry/judges/judge_list.html", {"page": page_of(request, rows, LIST_SIZE)})


@for_members
@require_page
@sensitive_post_parameters("key")
def judge_create(request: HttpRequest) -> HttpResponse:
    fields = _fields_of(request)
    context: dict[str, Any] = {"name": request.POST.get("name", ""), "groups": _groups(fields)} | _rubrics()
    status = 200
    if request.method == "POST":
        try:
            key = request.POST.get("key", "")
            return redirect(judges.register_judge(request.user, name=context["name"], fields=fields, key=key))
        except FieldErrors as refused:
            context["errors"], status = refused.errors, refused.status
    return render(request, "registry/judges/judge_form.html", context, status=status)


@require_page
@sensitive_post_parameters("key")
def judge_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """A POST changes the settings, or with `delete` deletes the judge."""
    row = _judge_or_404(request, pk)
    if request.method != "POST":
        return _page(request, row)
    fields = _fields_of(request)
    try:
        if "delete" in request.POST:
            judges.delete_judge(request.user, row)
            messages.info(request, f"{row.name} is deleted; runs that use it keep its settings.")
            return redirect("registry:judge_list")
        had_key = row.has_key
        row = judges.update_judge(request.user, row, fields, request.POST.get("key", ""))
    except FieldErrors as refused:
        return _page(request, row, refused.status, errors=refused.errors, groups=_groups(fields))
    text = f"Version {row.version} is the newest. Runs use it from their next attempt on."
    if had_key and not row.has_key:
        text += " The key was removed, because the address has changed: set it again."
    messages.success(request, text)
    return redirect(row)


@require_POST
def judge_try(request: HttpRequest, pk: int) -> HttpResponse:
    """The reward of `response` to `question` with the reference answer `gold`, or of a benchmark's first questions."""
    row = _judge_or_404(request, pk)
    if "benchmark" in request.POST:
        return _try_benchmark(request, row)
    texts = {key: request.POST.get(key, "") for key in ("question", "gold", "response")}
    try:
        return _page(request, row, texts=texts, result=judges.judge_of_response(row, **texts))
    except FieldErrors as refused:
        return _page(request, row, refused.status, texts=texts, try_errors=refused.errors)


def _try_benchmark(request: HttpRequest, row: Judge) -> HttpResponse:
    benchmarks = Benchmark.objects.filter(project=row.project_id)
    benchmark = get_object_or_404(benchmarks, pk=whole_number(request.POST["benchmark"], MAX_ID))
    try:
        return _page(request, row, benchmark=benchmark, tried=judges.judge_of_benchmark(row, benchmark))
    except FieldErrors as refused:
        return _page(request, row, refused.status, benchmark=benchmark, try_errors=refused.errors)


def _judge_or_404(request: HttpRequest, pk: int) -> Judge:
    return get_object_or_404(Judge.objects.visible_to(request.user), pk=pk)


def _fields_of(request: HttpRequest) -> dict[str, str]:
    return {name: request.POST.get(name, "").replace("\r\n", "\n") for name in JudgeSettings.model_fields}


def _groups(fields: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The form's fields with label, help, unit, choices and value; empty ones show their default."""
    groups = {}
    for title, names in GROUPS.items():
        rows = []
        for name in names:
            field = JudgeSettings.model_fields[name]
            extra: Any = field.json_schema_extra or {}
            value = fields.get(name, "")
            default = "" if field.is_required() else field.default
            rows.append(
                {
                    "name": name,
                    "label": extra.get("label") or name.removesuffix("_s").replace("_", " ").capitalize(),
                    "help": field.description,
                    "unit": extra.get("unit", ""),
                    "choices": get_args(field.annotation) if name in ("kind", "mode", "scale", "device") else (),
                    "value": default if value in ("", None) else value,
                }
            )
        groups[title] = rows
    return groups


def _rubrics() -> dict[str, Any]:
    return {"rubrics": {"score": DEFAULT_RUBRIC, "compare": DEFAULT_COMPARISON}, "kinds": JUDGE_KINDS}


def _page(request: HttpRequest, row: Judge, status: int = 200, **more: Any) -> HttpResponse:
    benchmarks = Benchmark.objects.filter(project=row.project_id)[:MAX_BENCHMARKS]
    context: dict[str, Any] = {
        "judge": row,
        "kind": JUDGE_KINDS[row.settings["kind"]],
        "groups": _groups(row.settings),
        "versions": row.versions.select_related("author")[:20],
        "benchmarks": benchmarks,
        "texts": {"question": "", "gold": "", "response": ""},
    } | _rubrics()
    return render(request, "registry/judges/judge_detail.html", context | more, status=status)
