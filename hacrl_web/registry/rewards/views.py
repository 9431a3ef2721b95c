"""Pages of what gives rewards: lists of reward functions and judges, adding one, and its own page with a try-out.

Views parse, call and render.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from django.conf import settings
from django.contrib import messages
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from hacrl_web.accounts.roles.projects import for_members, project_of_new
from hacrl_web.registry.base.pages import LIST_SIZE, require_page
from hacrl_web.registry.models import Benchmark, Judge, RewardFunction
from hacrl_web.registry.rewards import service
from hacrl_web.registry.rewards.service import SourceT
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import MAX_ID, page_of, whole_number
from workers.contract.spec.judge import DEFAULT_COMPARISON, DEFAULT_RUBRIC, JUDGE_KINDS, JudgeSettings

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
def source_list(request: HttpRequest, kind: type[SourceT]) -> HttpResponse:
    rows = kind.objects.listed_for(request.user).select_related("owner")
    return _render(request, kind, "list", {"page": page_of(request, rows, LIST_SIZE)}, 200)


@for_members
@require_page
@sensitive_post_parameters("key")
def source_create(request: HttpRequest, kind: type[SourceT]) -> HttpResponse:
    content = _content(request, kind)
    context: dict[str, Any] = {"name": request.POST.get("name", ""), "network_is_allowed": settings.REWARD_NETWORK}
    context |= _form(kind, content) | {
        "may_author": service.may_author(request.user, kind, project_of_new(request.user))
    }
    status = 200
    if request.method == "POST":
        try:
            values = {"name": context["name"], "content": content, "key": request.POST.get("key", "")}
            return redirect(service.register_source(request.user, kind, **values))
        except FieldErrors as refused:
            context["errors"], status = refused.errors, refused.status
    return _render(request, kind, "form", context, status)


@require_page
@sensitive_post_parameters("key")
def source_detail(request: HttpRequest, kind: type[SourceT], pk: int) -> HttpResponse:
    """A POST makes the newest version, or with `delete` deletes the row. A function is tried on `benchmark`."""
    row = _row(request, kind, pk)
    if request.method != "POST":
        is_tried = kind is RewardFunction and "benchmark" in request.GET
        return _tried_page(request, row, request.GET["benchmark"]) if is_tried else _page(request, row)
    content, had_key = _content(request, kind), isinstance(row, Judge) and row.has_key
    try:
        if "delete" in request.POST:
            service.delete_source(request.user, row)
            messages.info(request, f"{row.name} is deleted; runs that use it keep its file.")
            return redirect(f"registry:{kind.verifier}_list")
        row = service.update_source(request.user, row, content, request.POST.get("key", ""))
    except FieldErrors as refused:
        return _page(request, row, refused.status, errors=refused.errors, **_form(kind, content))
    text = f"Version {row.version} is the newest. Runs use it from their next attempt on."
    if had_key and not (isinstance(row, Judge) and row.has_key):
        text += " The key was removed, because the address has changed: set it again."
    messages.success(request, text)
    return redirect(row)


@require_POST
def source_try(request: HttpRequest, kind: type[SourceT], pk: int) -> HttpResponse:
    """The reward of `response` to `question` with the reference answer `gold`, or of a benchmark's first questions."""
    row = _row(request, kind, pk)
    if "benchmark" in request.POST:
        return _tried_page(request, row, request.POST["benchmark"])
    texts = {key: request.POST.get(key, "") for key in ("question", "gold", "response")}
    try:
        return _page(request, row, texts=texts, result=service.reward_of(row, **texts))
    except FieldErrors as refused:
        return _page(request, row, refused.status, texts=texts, try_errors=refused.errors)


def _row(request: HttpRequest, kind: type[SourceT], pk: int) -> SourceT:
    return get_object_or_404(kind.objects.visible_to(request.user), pk=pk)


def _tried_page(request: HttpRequest, row: Judge | RewardFunction, pk: str) -> HttpResponse:
    benchmarks = Benchmark.objects.filter(project=row.project_id)
    benchmark = get_object_or_404(benchmarks, pk=whole_number(pk, MAX_ID))
    try:
        return _page(request, row, benchmark=benchmark, tried=service.rewards_on(row, benchmark))
    except FieldErrors as refused:
        return _page(request, row, refused.status, benchmark=benchmark, try_errors=refused.errors)


def _page(request: HttpRequest, row: Judge | RewardFunction, status: int = 200, **more: Any) -> HttpResponse:
    kind = type(row)
    context = {
        "source": row,
        "versions": row.versions.select_related("author")[:20],
        "benchmarks": Benchmark.objects.filter(project=row.project_id)[:MAX_BENCHMARKS],
        "texts": {"question": "", "gold": "", "response": ""},
        "may_author": service.may_author(request.user, kind, row.project),
        "sandbox": cache.get(service.SANDBOX_KEY),
    }
    return _render(request, kind, "detail", context | _form(kind, getattr(row, row.content)) | more, status)


def _render(request: HttpRequest, kind: type[SourceT], page: str, context: dict[str, Any], status: int) -> HttpResponse:
    return render(request, f"registry/rewards/{kind.verifier}_{page}.html", context, status=status)


def _content(request: HttpRequest, kind: type[SourceT]) -> Any:
    """The form holds the text of a function, or the settings of a judge by name."""
    if kind is RewardFunction:
        return request.POST.get("source", "" if request.method == "POST" else EXAMPLE)
    return {name: request.POST.get(name, "").replace("\r\n", "\n") for name in JudgeSettings.model_fields}


def _form(kind: type[SourceT], content: Any) -> dict[str, Any]:
    """The form shows these values of it."""
    if kind is RewardFunction:
        return {"text": content}
    rubrics = {"score": DEFAULT_RUBRIC, "compare": DEFAULT_COMPARISON}
    return {"groups": _groups(content), "rubrics": rubrics, "kinds": JUDGE_KINDS}


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
