"""Pages of models and agent groups: parse, call the service, render."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from hacrl_web.accounts.projects import for_members, require_delete
from hacrl_web.registry.language_models import groups, models
from hacrl_web.registry.language_models.model_pairs import ModelPair, known_facts, measured_facts
from hacrl_web.registry.locations import model_roots
from hacrl_web.registry.models import AgentGroup, LanguageModel, VersionQuerySet
from hacrl_web.registry.pages.forms import AgentForm, GroupForm, RegisterForm, agent_forms, fill_agent_forms
from hacrl_web.registry.values import MAX_NAME
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import MAX_ID, PageQuery, RowId, page_of, whole_number

COPY = " copy"
LIST_SIZE = 50
require_page = require_http_methods(["GET", "HEAD", "POST"])


def _check_lines(checks: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Checks as components/checks.html draws them."""
    return [
        {"label": check["name"], "status": "pass" if check["ok"] else "fail", "detail": check["detail"]}
        for check in checks
    ]


# Language models


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
            return redirect(models.register_model(request.user, **fields))
        except FieldErrors as refused:
            refused.add_to(form)
            context["checks"], status = _check_lines(getattr(refused, "checks", [])), refused.status
    return render(request, "registry/language_models/model_form.html", context, status=status)


@require_safe
def model_detail(request: HttpRequest, pk: int) -> HttpResponse:
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    context = {"model": model, "checks": _check_lines(model.facts.get("checks", []))}
    context["groups"] = models.groups_with(model)[:LIST_SIZE]
    return render(request, "registry/language_models/model_detail.html", context)


@for_members
@require_page
def model_delete(request: HttpRequest, pk: int) -> HttpResponse:
    model = get_object_or_404(LanguageModel.objects.visible_to(request.user), pk=pk)
    using = models.groups_with(model)
    context = {"model": model, "num_groups": using.count(), "groups": using[: models.MAX_LISTED]}
    return _delete_page(request, model, models.delete_model, "model", context)


def _delete_page(
    request: HttpRequest, row: Any, delete: Callable[[Any], None], kind: str, context: dict[str, Any]
) -> HttpResponse:
    """GET shows what is lost, POST deletes; both refuse a user who may not delete."""
    errors, status = [], 200
    try:
        require_delete(request.user, row)
        if request.method == "POST":
            delete(row)
            messages.info(request, f"{row.name} is deleted.")
            return redirect(f"registry:{kind}_list")
    except FieldErrors as refused:
        errors, status = refused.errors, refused.status
    return render(request, f"registry/language_models/{kind}_delete.html", context | {"errors": errors}, status=status)


# Agent groups, with their earlier versions; benchmarks have such lists too


class VersionsQuery(PageQuery):
    """versions_of: the id of the row that is listed with its earlier versions."""

    versions_of: RowId | None = None


def versions_page(request: HttpRequest, rows: VersionQuerySet[Any]) -> dict[str, Any]:
    """What registry/_list_frame.html shows of these rows. Error: Http404 for versions of a row that is not listed."""
    query = VersionsQuery.read(request.GET)
    previous = dict(rows.exclude(edit_of=None).prefetch_related(None).order_by().values_list("pk", "edit_of"))
    latest = None
    if query.versions_of is None:
        rows = rows.newest_versions()
    else:
        latest = get_object_or_404(rows, pk=query.versions_of)
        rows = rows.filter(pk__in=[latest.pk, *_earlier(latest.pk, previous)])
    page = page_of(request, rows, LIST_SIZE)
    for row in page:
        row.num_earlier = sum(1 for _ in _earlier(row.pk, previous))
    return {"page": page, "latest": latest, "query": query.encode()}


def _earlier(pk: int, previous: Mapping[int, int]) -> Iterator[int]:
    """Ids of the versions before this row, the newest first. previous: of each edit, the version before."""
    while pk in previous:
        pk = previous[pk]
        yield pk


@require_safe
def group_list(request: HttpRequest) -> HttpResponse:
    rows = AgentGroup.objects.listed_for(request.user).prefetch_related("agents__model")
    return render(request, "registry/language_models/group_list.html", versions_page(request, rows))


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
            group = groups.create_group(request.user, name=name, agents=agents, edit_of=original)
            return redirect(group)
        except FieldErrors as refused:
            _show_group_errors(form, used, refused)
            status = refused.status
    context = {"form": form, "rows": rows, "has_models": bool(choices), "original": original}
    context["thinking_models"] = [str(model.pk) for model in listed if model.has_thinking_switch]
    return render(request, "registry/language_models/group_form.html", context, status=status)


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
    return render(request, "registry/language_models/group_detail.html", context)


@for_members
@require_page
def group_delete(request: HttpRequest, pk: int) -> HttpResponse:
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    context = {"group": group, "agents": group.agents.select_related("model"), "uses": groups.uses_of(group)}
    return _delete_page(request, group, groups.delete_group, "group", context)


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
    return render(request, f"registry/language_models/{template}.html", context)
