"""Panels of a report: an address of a run, of a comparison, of a sweep or of a board becomes what it shows now."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.http import QueryDict
from django.template.loader import render_to_string
from django.urls import Resolver404, ResolverMatch, resolve
from django.utils import timezone
from django.utils.safestring import SafeString

from hacrl_web.accounts.models import User
from hacrl_web.insight.compare.comparison import ACCURACY
from hacrl_web.insight.compare.lines import agent_lines, overlaid_lines
from hacrl_web.insight.compare.views import comparison_content
from hacrl_web.insight.overview.results import results
from hacrl_web.insight.plotly_figures import DrawnLine, lines_figure
from hacrl_web.leaderboard.board.boards import Board, sweep_board
from hacrl_web.leaderboard.board.selection import board_at, read_selection
from hacrl_web.leaderboard.board.table import make_table
from hacrl_web.leaderboard.render.context import board_context
from hacrl_web.runs.models import Run, Sweep
from hacrl_web.runs.run.results import with_results
from hacrl_web.runs.telemetry.scores import score_word
from hacrl_web.runs.workspace import columns, rows
from hacrl_web.runs.workspace.query import WorkspaceQuery, in_state, narrowed

MAX_PANELS = 20  # of a report
MAX_LISTED = 50  # runs of a list, of which the visible ones are compared


@dataclass(frozen=True)
class Panel:
    """html: its content, empty with a problem.  title: as the writer calls it, else the name of what it shows."""

    address: str
    title: str
    html: SafeString | str = ""
    problem: str = ""


@dataclass(frozen=True)
class PanelPlace:
    """A panel of a report's text: an address without its host, the writer's title, and which of the panels it is."""

    address: str
    title: str
    number: int

    @property
    def name(self) -> str:
        """The title of the panel until it is drawn."""
        return self.title or self.address


def has_page(address: str) -> bool:
    """Whether the product has a page at this address."""
    return _match(urlsplit(address).path) is not None


def has_panel(address: str) -> bool:
    """Whether the page at this address has a panel."""
    match = _match(urlsplit(address).path)
    return match is not None and match.view_name in _PANELS


def panel_of(project: int, user: User, place: PanelPlace, *, is_shared: bool = False) -> Panel:
    """The panel of an address that has one. What the reader may not see is a panel with a problem.

    project: the id of the report's project, whose runs a list shows.  is_shared: nothing of another project is shown.
    """
    parts = urlsplit(place.address)
    match = _match(parts.path)
    assert match is not None
    content = _PANELS[match.view_name](project, user, match, QueryDict(parts.query), f"panel-{place.number}")
    if content is None or (is_shared and _projects_of(content[2]) != {project}):
        return Panel(place.address, place.name, problem="It shows something that was deleted, or that you may not see.")
    name, template, context = content
    return Panel(place.address, place.title or name, render_to_string(template, context))


def _projects_of(context: dict[str, Any]) -> set[int]:
    """The projects of all runs that a panel shows."""
    if "board" in context:
        return set(context["board"].projects)
    runs = [one["run"] for one in context["comparison"]["runs"]] if "comparison" in context else [context["run"]]
    return {run.project_id for run in runs}


def _match(path: str) -> ResolverMatch | None:
    """The page of a path, with or without the slash at its end."""
    for one in (path, path.rstrip("/") if path.endswith("/") else f"{path}/"):
        with suppress(Resolver404):
            return resolve(one)
    return None


Content = tuple[str, str, dict[str, Any]]  # name, template, its context


def _run(_: int, user: User, match: ResolverMatch, query: QueryDict, key: str) -> Content | None:
    """A run's result, and one metric of its agents: of the chart that the address shows in full, else its score."""
    run = Run.objects.visible_to(user).filter(pk=match.kwargs["run_id"]).first()
    if run is None:
        return None
    metric = query.get("full", "").replace("\x00", "")[:200] or ACCURACY
    drawn = agent_lines(run, metric)
    if not drawn and metric != ACCURACY:
        metric, drawn = ACCURACY, agent_lines(run, ACCURACY)
    context = {"run": run, "results": results(run), **_figure(drawn, _metric_name(metric, [run]), key)}
    return run.name, "reports/_run.html", context


def _comparison(project: int, user: User, _: ResolverMatch, query: QueryDict, key: str) -> Content | None:
    """The visible runs of the workspace at this address, of the report's project unless the address names runs."""
    workspace = WorkspaceQuery.read(query)
    visible = Run.objects.visible_to(user)
    every = visible if workspace.runs else visible.filter(project=project)
    matches = in_state(narrowed(every, workspace).select_related("benchmark", "group", "sweep"), workspace.state)
    keys = rows.readable_keys(workspace)
    listed = columns.sorted_runs(matches, workspace.sort)[: rows.MAX_GROUPED if keys else MAX_LISTED]
    runs_of_list = list(with_results(list(listed), timezone.now()))
    groups = rows.grouped(runs_of_list, keys, workspace.sort) if keys else rows.single_rows(runs_of_list)
    rows.coloured(groups, workspace)
    comparison = comparison_content(groups, workspace)
    if comparison is None:
        return None
    runs = [one["run"] for one in comparison["runs"]]
    metric = comparison["choice"].metric
    lines = overlaid_lines(runs, {metric})
    drawn = [
        (one["short_name"], line["x"], line["y"], {"run": one["colour"]})
        for line in lines
        for one in [comparison["runs"][line["group"]]]
    ]
    means = [row for row in comparison["rows"] if row[2].is_mean or len(row[2].run.agent_names) == 1]
    context = {"comparison": comparison | {"rows": means}, **_figure(drawn, _metric_name(metric, runs), key)}
    return f"{len(runs)} runs" if len(runs) > 1 else runs[0].name, "reports/_comparison.html", context


def _sweep(_: int, user: User, match: ResolverMatch, query: QueryDict, key: str) -> Content | None:
    sweep = Sweep.objects.visible_to(user).filter(pk=match.kwargs["sweep_id"]).first()
    return None if sweep is None else _board_content(sweep_board(sweep), query, key)


def _board(_: int, user: User, __: ResolverMatch, query: QueryDict, key: str) -> Content | None:
    board = board_at(query, user)
    return None if board is None else _board_content(board, query, key)


def _board_content(board: Board, query: QueryDict, key: str) -> Content:
    """The board with its picture of differences, once there are some."""
    context = board_context(make_table(board, read_selection(query, board)), key)
    differences = [one for one in context["pictures"] if one["name"] == "gain"]
    return board.name, "leaderboard/_board.html", context | {"pictures": differences}


_PANELS = {
    "runs:run_detail": _run,
    "runs:run_list": _comparison,
    "runs:sweep_detail": _sweep,
    "leaderboard:board": _board,
}


def _metric_name(metric: str, runs: Sequence[Run]) -> str:
    return f"held-out {score_word(runs)}" if metric == ACCURACY else metric


def _figure(lines: Sequence[DrawnLine], metric: str, key: str) -> dict[str, Any]:
    """The lines over steps; `figure` is None without any."""
    figure = lines_figure(lines, metric) if lines else None
    return {"figure": figure, "figure_id": f"figure-{key}", "metric": metric}
