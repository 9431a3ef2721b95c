"""Pages of reward functions: the list, adding one, and its own page with a try-out. Views parse, call and render."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from hacrl_web.accounts.projects import for_members, project_of_new
from hacrl_web.registry import reward_functions as functions
from hacrl_web.registry.models import Benchmark, RewardFunction
from hacrl_web.registry.pages.models_and_groups import LIST_SIZE, require_page
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import MAX_ID, page_of, whole_number

MAX_BENCHMARKS = 200  # to choose from
EXAMPLE = '''def reward(question, answer, response, **fields):
    """Half of the credit for a box, half for the answer in it."""
    _, box, rest = response.rpartition("\\\\boxed{")
    if not box:
        return 0.0
    return 0.5 + 0.5 * (rest.split("}")[0].strip() == answer)
'''


@require_safe
def function_list(request: HttpRequest) -> HttpResponse:
    rows = RewardFunction.objects.listed_for(request.user).select_related("owner")
    return render(request, "registry/reward_functions/function_list.html", {"page": page_of(request, rows, LIST_SIZE)})


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
    row = _function_or_404(request, pk)
    if request.method != "POST":
        return _page(request, row)
    try:
        if "delete" in request.POST:
            functions.delete_function(request.user, row)
            messages.info(request, f"{row.name} is deleted; runs that use it keep its file.")
            return redirect("registry:function_list")
        row = functions.update_function(request.user, row, request.POST.get("source", ""))
    except FieldErrors as refused:
        return _page(request, row, refused.status, errors=refused.errors, source=request.POST.get("source", ""))
    messages.success(request, f"Version {row.version} is the newest. Runs use it from their next attempt on.")
    return redirect(row)


@require_POST
def function_try(request: HttpRequest, pk: int) -> HttpResponse:
    """The reward of `response` to `question` with the reference answer `gold`."""
    row = _function_or_404(request, pk)
    texts = {key: request.POST.get(key, "") for key in ("question", "gold", "response")}
    try:
        return _page(request, row, texts=texts, result=functions.reward_of(row, **texts))
    except FieldErrors as refused:
        return _page(request, row, refused.status, texts=texts, try_errors=refused.errors)


def _function_or_404(request: HttpRequest, pk: int) -> RewardFunction:
    return get_object_or_404(RewardFunction.objects.visible_to(request.user), pk=pk)


def _page(request: HttpRequest, row: RewardFunction, status: int = 200, **more: Any) -> HttpResponse:
    benchmarks = Benchmark.objects.filter(project=row.project_id)[:MAX_BENCHMARKS]
    context: dict[str, Any] = {
        "function": row,
        "source": row.text,
        "versions": row.versions.select_related("author")[:20],
        "may_author": functions.may_author(request.user, row.project),
        "benchmarks": benchmarks,
        "texts": {"question": "", "gold": "", "response": ""},
    }
    if (pk := whole_number(request.GET.get("benchmark", ""), MAX_ID)) is not None:
        context["benchmark"] = benchmark = next((one for one in benchmarks if one.pk == pk), None)
        try:
            context["tried"] = functions.try_on_benchmark(row, benchmark) if benchmark else None
        except FieldErrors as refused:
            context["try_errors"] = refused.errors
    return render(request, "registry/reward_functions/function_detail.html", context | more, status=status)
