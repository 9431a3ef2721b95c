"""The pages that forget a model and delete an agent group: they name what is lost before they ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from hacrl_web.accounts.projects import for_members, require_delete
from hacrl_web.registry.language_models import deletion
from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.registry.pages.models_and_groups import require_page
from hacrl_web.web.errors import FieldErrors


@for_members
@require_page
def model_delete(request: HttpRequest, pk: int) -> HttpResponse:
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    groups = deletion.groups_with(model)
    context = {"model": model, "num_groups": groups.count(), "groups": groups[: deletion.SHOWN]}
    return _page(request, model, deletion.delete_model, "model", context)


@for_members
@require_page
def group_delete(request: HttpRequest, pk: int) -> HttpResponse:
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    context = {"group": group, "agents": group.agents.select_related("model"), "uses": deletion.uses_of(group)}
    return _page(request, group, deletion.delete_group, "group", context)


def _page(
    request: HttpRequest, row: Any, delete: Callable[[Any], None], kind: str, context: dict[str, Any]
) -> HttpResponse:
    """GET names what is lost, POST deletes; who may not is told before asking."""
    errors, status = [], 200
    try:
        require_delete(request.user, row)
        if request.method == "POST":
            delete(row)
            messages.info(request, f"{row.name} is deleted.")
            return redirect(f"registry:{kind}_list")
    except FieldErrors as refused:
        errors, status = refused.errors, refused.status
    return render(request, f"registry/{kind}_delete.html", context | {"errors": errors}, status=status)
