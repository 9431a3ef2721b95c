"""Pages of language models: parse, call the service, render."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from hacrl_web.accounts.roles.projects import for_members
from hacrl_web.registry.base.locations import model_roots
from hacrl_web.registry.base.pages import LIST_SIZE, delete_page, require_page
from hacrl_web.registry.language_models import service
from hacrl_web.registry.language_models.forms import RegisterForm
from hacrl_web.registry.models import LanguageModel
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import page_of


def _check_lines(checks: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Checks as components/checks.html draws them."""
    return [
        {"label": check["name"], "status": "pass" if check["ok"] else "fail", "detail": check["detail"]}
        for check in checks
    ]


@require_safe
def model_list(request: HttpRequest) -> HttpResponse:
    rows = LanguageModel.objects.listed_for(request.user).select_related("owner")
    return render(request, "registry/language_models/model_list.html", {"page": page_of(request, rows, LIST_SIZE)})


@for_members
@require_page
def model_create(request: HttpRequest) -> HttpResponse:
    form = RegisterForm(request.POST if request.method == "POST" else None)
    context: dict[str, Any] = {"form": form, "roots": model_roots()}
    status = 200
    if request.method == "POST":
        try:
            fields: dict[str, Any] = {name: form[name].data or "" for name in form.fields}
            return redirect(service.register_model(request.user, **fields))
        except FieldErrors as refused:
            refused.add_to(form)
            context["checks"], status = _check_lines(getattr(refused, "checks", [])), refused.status
    return render(request, "registry/language_models/model_form.html", context, status=status)


@require_safe
def model_detail(request: HttpRequest, pk: int) -> HttpResponse:
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    context = {"model": model, "checks": _check_lines(model.facts.get("checks", []))}
    context["groups"] = service.groups_with(model)[:LIST_SIZE]
    return render(request, "registry/language_models/model_detail.html", context)


@for_members
@require_page
def model_delete(request: HttpRequest, pk: int) -> HttpResponse:
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    using = service.groups_with(model)
    context = {"model": model, "num_groups": using.count(), "groups": using[: service.MAX_LISTED]}
    return delete_page(request, model, service.delete_model, "language_models/model", context)
