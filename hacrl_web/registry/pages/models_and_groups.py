"""Pages of models, agent groups and benchmarks: parse, call the service, render."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from hacrl_web.accounts.projects import for_members
from hacrl_web.registry.language_models import services
from hacrl_web.registry.language_models.model_pairs import ModelPair, is_measured, known_facts, measured_facts
from hacrl_web.registry.locations import model_roots
from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.registry.pages.forms import GroupForm, RegisterForm, agent_forms
from hacrl_web.web.errors import FieldErrors

PAGE_SIZE = 50
require_page = require_http_methods(["GET", "HEAD", "POST"])


def page_of(request: HttpRequest, rows: QuerySet[Any]) -> Any:
    """The asked page of a list; a page that is not there is the nearest one."""
    return Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))


def _check_lines(checks: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Checks as components/checks.html draws them."""
    return [
        {"label": check["name"], "status": "pass" if check["ok"] else "fail", "detail": check["detail"]}
        for check in checks
    ]


# Language models


@require_safe
def model_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, LanguageModel.objects.listed_for(request.user).select_related("owner"))
    return render(request, "registry/model_list.html", {"page": page})


@for_members
@require_page
def model_create(request: HttpRequest) -> HttpResponse:
    form = RegisterForm(request.POST if request.method == "POST" else None)
    checks: list[dict[str, Any]] = []
    status = 200
    if request.method == "POST":
        fields = {field: request.POST.get(field, "") for field in form.fields}
        try:
            return redirect(services.register_model(request.user, **fields))
        except FieldErrors as refused:
            form.add_refusal(refused)
            checks = getattr(refused, "checks", [])
            status = refused.status
    context = {"form": form, "checks": _check_lines(checks), "roots": model_roots()}
    return render(request, "registry/model_form.html", context, status=status)


@require_safe
def model_detail(request: HttpRequest, pk: int) -> HttpResponse:
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    groups = AgentGroup.objects.visible_to(request.user).filter(agents__model=model).distinct()[:PAGE_SIZE]
    context = {"model": model, "checks": _check_lines(model.facts.get("checks", [])), "groups": groups}
    return render(request, "registry/model_detail.html", context)


# Agent groups


@require_safe
def group_list(request: HttpRequest) -> HttpResponse:
    rows = AgentGroup.objects.listed_for(request.user).prefetch_related("agents__model")
    return render(request, "registry/group_list.html", {"page": page_of(request, rows)})


@for_members
@require_page
def group_create(request: HttpRequest) -> HttpResponse:
    data = request.POST if request.method == "POST" else None
    models = LanguageModel.objects.listed_for(request.user)
    form = GroupForm(data)
    rows = agent_forms([(str(model.pk), model.name) for model in models], data)
    status = 200
    if data is not None:
        used = [row for row in rows if row.is_used]
        try:
            group = services.create_group(request.user, name=data.get("name", ""), agents=[row.asked() for row in used])
            return redirect(group)
        except FieldErrors as refused:
            _show_group_refusal(form, used, refused)
            status = refused.status
    context = {"form": form, "rows": rows, "has_models": bool(models)}
    return render(request, "registry/group_form.html", context, status=status)


def _show_group_refusal(form: GroupForm, used: list[Any], refused: FieldErrors) -> None:
    """Errors at `agents.1.name` go to the second used row."""
    own = []
    for error in refused.errors:
        parts = (error.field or "").split(".")
        if len(parts) == 3 and parts[0] == "agents":
            used[int(parts[1])].add_error(parts[2], error.message)
        else:
            own.append(error)
    form.add_refusal(FieldErrors(own))


@require_safe
def group_detail(request: HttpRequest, pk: int) -> HttpResponse:
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    pairs = [ModelPair(a, b, known_facts(a.model, b.model)) for a, b in group.agent_pairs()]
    context = {"group": group, "agents": group.agents.select_related("model"), "pairs": pairs}
    return render(request, "registry/group_detail.html", context)


@require_safe
def group_pair(request: HttpRequest, pk: int, first: int, second: int) -> HttpResponse:
    """One pair, measured now if it was not: the page asks for each on its own, for a child takes seconds."""
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    pairs = [(a, b) for a, b in group.agent_pairs() if (a.position, b.position) == (first, second)]
    if not pairs:
        raise Http404
    a, b = pairs[0]
    error = ""
    facts: dict[str, Any] | None = None
    try:
        facts = measured_facts(a.model, b.model)
    except FieldErrors as refused:
        error = refused.errors[0].message
    if facts is not None and not is_measured(facts):
        error, facts = str(facts.get("error") or "The two models could not be compared."), None
    context = {"group": group, "pair": ModelPair(a, b, facts), "error": error}
    is_fragment = request.headers.get("HX-Request") == "true"
    return render(request, "registry/pair_row.html" if is_fragment else "registry/pair_page.html", context)
