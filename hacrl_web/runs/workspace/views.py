"""The workspace of runs: their list, whose visible rows are drawn over each other in panels; and its saved views."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from hacrl_web.runs.models import HELD, Run, RunQuerySet, RunView, State
from hacrl_web.runs.run.labels import tags_of
from hacrl_web.runs.run.results import with_results
from hacrl_web.runs.telemetry.scores import score_benchmark, score_word
from hacrl_web.runs.telemetry.unmeasured import unmeasured_by_all
from hacrl_web.runs.workspace import columns as run_columns
from hacrl_web.runs.workspace import rows as run_rows
from hacrl_web.runs.workspace.query import UNDER_WAY, WorkspaceQuery, in_state, narrowed, states_of
from hacrl_web.runs.workspace.saved_views import MAX_QUERY, delete_view, save_view
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import one_of, page_of

PAGE_SIZE = 50
TAGS_SHOWN = 40


@require_GET
def run_list(request: HttpRequest) -> HttpResponse:
    """Runs of the project, newest first unless the address says otherwise."""
    query = WorkspaceQuery.read(request.GET)
    every = Run.objects.visible_to(request.user) if query.runs else Run.objects.listed_for(request.user)
    tags = tags_of(every.filter(archived_at__isnull=not query.archived))
    query = query.model_copy(update={"tag": one_of(query.tag, tags)})
    matches = narrowed(every, query)
    counts = Counter(dict(matches.order_by().values_list("state").annotate(Count("pk"))))
    keys = run_rows.readable_keys(query)
    listed = run_columns.sorted_runs(in_state(matches, query.state), query.sort)
    num_listed = sum(counts[state] for state in states_of(query.state))
    page = page_of(request, listed, run_rows.MAX_GROUPED if keys else PAGE_SIZE, num_listed)
    listed_runs = with_results(_with_related(page.object_list), timezone.now())
    page.object_list = run_rows.with_short_names(run_rows.with_gains(listed_runs))
    rows = run_rows.grouped(page.object_list, keys, query.sort) if keys else run_rows.single_rows(page.object_list)
    visible_keys = set(run_rows.coloured(rows, query))
    context = {
        "page": page,
        "rows": rows,
        "is_grouped": bool(keys),
        "visible": [run for row in rows if row.key in visible_keys for run in row.runs][: run_rows.MAX_SHOWN],
        "query": query.encode(),
        "filters": query,
        "view": _current_view(request, query),
        "score_word": score_word(page.object_list),
        "score_on": score_benchmark(page.object_list),
        "page_data": {
            "keys": [row.key for row in rows],
            "atFirst": run_rows.SHOWN_AT_FIRST,
            "most": run_rows.MAX_SHOWN,
            "scoreWord": score_word(page.object_list),
            "unmeasured": unmeasured_by_all(page.object_list),
        },
    }
    return render(
        request,
        "runs/workspace/workspace.html",
        context | _filters(every, counts, query, tags) | _table(query, page.object_list),
    )


def _with_related(page: QuerySet[Run]) -> list[Run]:
    """The runs of a page, with what its table names of other objects: only theirs are read, also on a late page."""
    order = {pk: place for place, pk in enumerate(page.values_list("pk", flat=True))}
    runs = Run.objects.filter(pk__in=order).select_related("benchmark", "group", "sweep")
    return sorted(runs, key=lambda run: order[run.pk])


def _filters(every: RunQuerySet, counts: Counter[str], query: WorkspaceQuery, tags: list[str]) -> dict[str, Any]:
    """The links above the list: states, archived runs, tags; each keeps the rest of the address.

    counts: runs by state.
    """
    archived = narrowed(every, query.model_copy(update={"archived": "1"})) if not query.runs else every.none()
    return {
        "states": [
            (state, counts[state], query.encode(state=state))
            for state in State.values
            if counts[state] or state == query.state
        ],
        "all_query": query.encode(state=""),
        "held_query": query.encode(state=UNDER_WAY),
        "tags": [(tag, query.encode(tag="" if tag == query.tag else tag)) for tag in tags[:TAGS_SHOWN]],
        "has_runs": every.exists(),
        "total": counts.total(),
        "num_archived": archived.count(),
        "archived_query": query.encode(archived="" if query.archived else "1", state=""),
        "num_held": sum(counts[state] for state in HELD),
        "order_text": "sorted" if query.sort else "newest first",
        "hidden": [(name, value) for name, value in query.pairs if name != "q"],
        "layouts": [
            (name, label, query.encode(layout=name), query.layout == name)
            for name, label in (("table", "Table"), ("", "Table and panels"), ("panels", "Panels"))
        ],
        "tabs": [
            ("Panels", query.encode(tab=""), query.tab == ""),
            ("Comparison", query.encode(tab="compare"), query.tab == "compare"),
        ],
    }


def _table(query: WorkspaceQuery, runs: Any) -> dict[str, Any]:
    """Columns with their headings, and the forms that choose columns and groups."""
    columns = run_columns.chosen_columns(query)
    names = {column.name for column in columns}
    settings = run_columns.varied_settings(runs)
    others = [column.name for column in columns if column.is_setting and column.name not in settings]
    keys = run_rows.readable_keys(query)
    return {
        "columns": columns,
        "headings": [run_columns.heading(column, query, runs) for column in (run_columns.NAME, *columns)],
        "offered_columns": [(name, column.label, name in names) for name, column in run_columns.COLUMNS.items()],
        "offered_settings": [(path, path in names) for path in sorted({*settings, *others})],
        "column_fields": [(name, value) for name, value in query.pairs if name != "columns"],
        "group_fields": [(name, value) for name, value in query.pairs if name not in ("by", "show", "hide")],
        "group_choices": [(name, label) for name, (label, _) in run_rows.GROUP_KEYS.items()],
        "group_settings": sorted({*settings, *(key for key in keys if key not in run_rows.GROUP_KEYS)}),
        "keys": [*keys, ""][:2],
        "ungrouped_query": query.encode(by=(), show="", hide=""),
    }


def _current_view(request: HttpRequest, query: WorkspaceQuery) -> dict[str, Any]:
    views = list(RunView.objects.listed_for(request.user))
    return {"all": views, "current": next((view for view in views if view.query == query.encode()), None)}


def _address(query: str) -> str:
    return f"{reverse('runs:run_list')}?{query}" if query else reverse("runs:run_list")


@require_POST
def view_save(request: HttpRequest) -> HttpResponse:
    """Save the address of the workspace under a name."""
    query = request.POST.get("query", "")
    try:
        view = save_view(request.user, request.POST.get("name", ""), query)
    except FieldErrors as refused:
        if refused.status == 403:
            raise
        messages.error(request, refused.errors[0].message)
        return redirect(_address(WorkspaceQuery.read(QueryDict(query[:MAX_QUERY].replace("\x00", ""))).encode()))
    messages.info(request, f"View “{view.name}” is saved for the project.")
    return redirect(_address(view.query))


@require_POST
def view_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a saved view; the runs stay."""
    view = get_object_or_404(RunView.objects.visible_to(request.user), pk=pk)
    name = view.name
    delete_view(request.user, view)
    messages.info(request, f"View “{name}” is deleted. Its runs are kept.")
    return redirect("runs:run_list")
