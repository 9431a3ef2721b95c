"""Pages of what gives rewards: lists of reward functions and judges, adding one, and its own page with a try-out.

Views parse, call and render.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from hacrl_web.accounts.projects import for_members, project_of_new
from hacrl_web.registry import judges
from hacrl_web.registry import reward_functions as functions
from hacrl_web.registry.models import Benchmark, Judge, RewardFunction
from hacrl_web.registry.pages.models_and_groups import LIST_SIZE, require_page
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import MAX_ID, page_of, whole_number
from workers.contract.spec.judge import DEFAULT_COMPARISON, DEFAULT_RUBRIC, JUDGE_KINDS, JudgeSettings

SourceT = TypeVar("SourceT", Judge, RewardFunction)
MAX_BENCHMARKS = 200  # to choose from
EXAMPLE = '''def reward(question, answer, response, **fields):
    """Half of the credit for a box, half for the answer in it."""
    _, box, rest = response.rpartition("\\\\boxed{")
    if not box:
        return 0.0
    return 0.5 + 0.5 * (rest.split("}")[0].strip() == answer)
'''
# The fields of the form in their groups.
GROUPS = {
    "Model": ("kind", "address", "model", "device"),
    "What it is asked": ("mode", "rubric", "lowest", "highest", "scale", "label", "max_tokens", "max_input_tokens"),
    "Limits and price": (
        *("time_limit_s", "concurrency", "retries", "batch_size", "price_input", "price_output", "budget"),
    ),
}


@require_safe
def function_list(request: HttpRequest) -> HttpResponse:
    return _list(request, RewardFunction, "registry/reward_functions/function_list.html")


@require_safe
def judge_list(request: HttpRequest) -> HttpResponse:
    return _list(request, Judge, "registry/judges/judge_list.html")


@for_members
@require_page
def function_create(request: HttpRequest) -> HttpResponse:
    values = {"name": request.POST.get("name", ""), "source": request.POST.get("source", EXAMPLE)}
    context: dict[str, Any] = {"values": values, "network_is_allowed": settings.REWARD_NETWORK}
    context["may_author"] = functions.may_author(request.user, project_of_new(request.user))
    status = 200
    if request.method == "POST":
        try:
            return redirect(functions.register_function(request.user, **values))
        except FieldErrors as refused:
            context["errors"], status = refused.errors, refused.status
    return render(request, "registry/reward_functions/function_form.html", context, status=status)


@require_page
def function_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """A POST makes `source` the newest version, or with `delete` deletes the function."""
    row = _row(RewardFunction, request, pk)
    if request.method != "POST":
        return _function_page(request, row)
    try:
        if "delete" in request.POST:
            functions.delete_function(request.user, row)
            messages.info(request, f"{row.name} is deleted; runs that use it keep its file.")
            return redirect("registry:function_list")
        row = functions.update_function(request.user, row, request.POST.get("source", ""))
    except FieldErrors as refused:
        return _function_page(request, row, refused.status, errors=refused.errors, text=request.POST.get("source", ""))
    messages.success(request, f"Version {row.version} is the newest. Runs use it from their next attempt on.")
    return redirect(row)


@require_POST
def function_try(request: HttpRequest, pk: int) -> HttpResponse:
    """The reward of `response` to `question` with the reference answer `gold`."""
    row = _row(RewardFunction, request, pk)
    return _try(request, row, functions.reward_of, _function_page)


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
    row = _row(Judge, request, pk)
    if request.method != "POST":
        return _judge_page(request, row)
    fields = _fields_of(request)
    try:
        if "delete" in request.POST:
            judges.delete_judge(request.user, row)
            messages.info(request, f"{row.name} is deleted; runs that use it keep its settings.")
            return redirect("registry:judge_list")
        had_key = row.has_key
        row = judges.update_judge(request.user, row, fields, request.POST.get("key", ""))
    except FieldErrors as refused:
        return _judge_page(request, row, refused.status, errors=refused.errors, groups=_groups(fields))
    text = f"Version {row.version} is the newest. Runs use it from their next attempt on."
    if had_key and not row.has_key:
        text += " The key was removed, because the address has changed: set it again."
    messages.success(request, text)
    return redirect(row)


@require_POST
def judge_try(request: HttpRequest, pk: int) -> HttpResponse:
    """The reward of `response` to `question` with the reference answer `gold`, or of a benchmark's first questions."""
    row = _row(Judge, request, pk)
    if "benchmark" not in request.POST:
        return _try(request, row, judges.judge_of_response, _judge_page)
    benchmarks = Benchmark.objects.filter(project=row.project_id)
    benchmark = get_object_or_404(benchmarks, pk=whole_number(request.POST["benchmark"], MAX_ID))
    try:
        return _judge_page(request, row, benchmark=benchmark, tried=judges.judge_of_benchmark(row, benchmark))
    except FieldErrors as refused:
        return _judge_page(request, row, refused.status, benchmark=benchmark, try_errors=refused.errors)


def _list(request: HttpRequest, kind: type[Judge] | type[RewardFunction], template: str) -> HttpResponse:
    rows = kind.objects.listed_for(request.user).select_related("owner")
    return render(request, template, {"page": page_of(request, rows, LIST_SIZE)})


def _row(kind: type[SourceT], request: HttpRequest, pk: int) -> SourceT:
    return get_object_or_404(kind.objects.visible_to(request.user), pk=pk)


def _try(
    request: HttpRequest, row: SourceT, reward: Callable[..., dict[str, Any]], page: Callable[..., HttpResponse]
) -> HttpResponse:
    texts = {key: request.POST.get(key, "") for key in ("question", "gold", "response")}
    try:
        return page(request, row, texts=texts, result=reward(row, **texts))
    except FieldErrors as refused:
        return page(request, row, refused.status, texts=texts, try_errors=refused.errors)


def _context(row: Judge | RewardFunction) -> dict[str, Any]:
    """What both pages show. source: the row."""
    return {
        "source": row,
        "versions": row.versions.select_related("author")[:20],
        "benchmarks": Benchmark.objects.filter(project=row.project_id)[:MAX_BENCHMARKS],
        "texts": {"question": "", "gold": "", "response": ""},
    }


def _function_page(request: HttpRequest, row: RewardFunction, status: int = 200, **more: Any) -> HttpResponse:
    context = _context(row) | {"text": row.text, "may_author": functions.may_author(request.user, row.project)}
    if (pk := whole_number(request.GET.get("benchmark", ""), MAX_ID)) is not None:
        context["benchmark"] = benchmark = next((one for one in context["benchmarks"] if one.pk == pk), None)
        try:
            context["tried"] = functions.try_on_benchmark(row, benchmark) if benchmark else None
        except FieldErrors as refused:
            context["try_errors"] = refused.errors
    return render(request, "registry/reward_functions/function_detail.html", context | more, status=status)


def _judge_page(request: HttpRequest, row: Judge, status: int = 200, **more: Any) -> HttpResponse:
    context = _context(row) | _rubrics() | {"kind": JUDGE_KINDS[row.settings["kind"]], "groups": _groups(row.settings)}
    return render(request, "registry/judges/judge_detail.html", context | more, status=status)


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
