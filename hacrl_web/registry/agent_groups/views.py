"""Pages of agent groups: parse, call the service, render."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from hacrl_web.accounts.roles.projects import for_members
from hacrl_web.registry.agent_groups import service
from hacrl_web.registry.agent_groups.forms import AgentForm, GroupForm, agent_forms, fill_agent_forms
from hacrl_web.registry.agent_groups.model_pairs import ModelPair, known_facts, measured_facts
from hacrl_web.registry.base.pages import delete_page, require_page, versions_page
from hacrl_web.registry.base.values import COPY, MAX_NAME
from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import MAX_ID, PageQuery, RowId, whole_number


@require_safe
def group_list(request: HttpRequest) -> HttpResponse:
    rows = AgentGroup.objects.listed_for(request.user).prefetch_related("agents__model")
    return render(request, "registry/agent_groups/group_list.html", versions_page(request, rows))


class GroupQuery(PageQuery):
    """model: the id of the one that the first agent gets.  copy_of: the id of the group that the form begins with."""

    model: RowId | None = None
    copy_of: RowId | None = None


@for_members
@require_page
def group_create(request: HttpRequest) -> HttpResponse:
    data = request.POST if request.method == "POST" else None
    listed = list(LanguageModel.objects.listed_for(request.user))
    choices = [(str(model.pk), model.name) for model in listed]
    query = GroupQuery.read(request.GET)
    form, rows = GroupForm(data), agent_forms(choices, data, first=query.model)
    copy_of = query.copy_of if data is None else whole_number(data.get("copy_of"), MAX_ID)
    original = AgentGroup.objects.visible_to(request.user).filter(pk=copy_of).first()
    if original is not None and data is None:
        form.initial["name"] = f"{original.name[: MAX_NAME - len(COPY)]}{COPY}"
        fill_agent_forms(rows, original)
    status = 200
    if data is not None:
        used = [row for row in rows if row.is_used]
        try:
            name = data.get("name", "").strip() or _name_of_agents(used, dict(choices))
            agents = [row.values() for row in used]
            group = service.create_group(request.user, name=name, agents=agents, edit_of=original)
            return redirect(group)
        except FieldErrors as refused:
            _show_group_errors(form, used, refused)
            status = refused.status
    context = {"form": form, "rows": rows, "has_models": bool(choices), "original": original}
    context["thinking_models"] = [str(model.pk) for model in listed if model.has_thinking_switch]
    return render(request, "registry/agent_groups/group_form.html", context, status=status)


def _name_of_agents(used: Sequence[AgentForm], models: Mapping[str, str]) -> str:
    """The name of a group without one: its agents' names, joined. models: names by id."""
    names = [row["name"].value() or models.get(row["model"].value() or "", "") for row in used]
    return " + ".join(filter(None, names))[:MAX_NAME]


def _show_group_errors(form: GroupForm, used: list[Any], refused: FieldErrors) -> None:
    """Show each error in its row: `agents.1.name` belongs to the second used row."""
    own = []
    for error in refused.errors:
        parts = (error.field or "").split(".")
        if len(parts) == 3 and parts[0] == "agents":
            used[int(parts[1])].add_error(parts[2], error.message)
        else:
            own.append(error)
    FieldErrors(own).add_to(form)


@require_safe
def group_detail(request: HttpRequest, pk: int) -> HttpResponse:
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    pairs = [ModelPair(a, b, known_facts(a.model, b.model)) for a, b in group.agent_pairs()]
    context = {"group": group, "agents": group.agents.select_related("model"), "pairs": pairs}
    return render(request, "registry/agent_groups/group_detail.html", context)


@for_members
@require_page
def group_delete(request: HttpRequest, pk: int) -> HttpResponse:
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    context = {"group": group, "agents": group.agents.select_related("model"), "uses": service.uses_of(group)}
    return delete_page(request, group, service.delete_group, "agent_groups/group", context)


@require_safe
def group_pair(request: HttpRequest, pk: int, first: int, second: int) -> HttpResponse:
    """One pair, measured now if it was not; the group's page loads each by itself, since measuring takes seconds."""
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    agents = group.pair_at(first, second)
    if agents is None:
        raise Http404
    facts, error = None, ""
    try:
        facts = measured_facts(agents[0].model, agents[1].model, request.user)
    except FieldErrors as refused:
        error = refused.errors[0].message
    context = {"group": group, "pair": ModelPair(agents[0], agents[1], facts), "error": error}
    template = "_pair_row" if request.headers.get("HX-Request") == "true" else "pair_page"
    return render(request, f"registry/agent_groups/{template}.html", context)
