"""A comparison as an address chooses it: the former page's addresses, and the table as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET

from hacrl_web.insight import settings_diff
from hacrl_web.insight.compare import comparison
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.scores import score_benchmark, score_word
from hacrl_web.runs.workspace.query import WorkspaceQuery
from hacrl_web.runs.workspace.rows import RunGroup
from hacrl_web.web.page_query import PageQuery, Text, encode_query, one_of
from hacrl_web.web.short_names import distinct_names
from hacrl_web.web.streaming import download_csv
from workers.contract.spec.algorithm import BASELINE

OWN_BENCHMARKS = "each run's own benchmark"
CSV_HEAD = (
    *("run", "name", "algorithm", "seed", "agent", "metric", "best", "step_of_best", "last", "last_step"),
    *("best_minus_baseline", "last_minus_baseline", "baseline"),
)


class ComparisonQuery(PageQuery):
    """The runs and how they are compared."""

    runs: tuple[UUID, ...] = ()
    baseline: Text = ""
    metric: Text = ""
    x: comparison.Axis = "step"
    best: Literal["", "high", "low"] = ""


@dataclass(frozen=True)
class CompareSelection:
    """A comparison as its address chooses it."""

    runs: list[Run]
    num_requested: int
    baseline: Run
    metric: str
    metrics: list[str]
    axis: comparison.Axis
    best: Literal["", "high", "low"]

    @property
    def score_word(self) -> str:
        """What the held-out scores of these runs are called together."""
        return score_word(self.runs)

    @property
    def title(self) -> str:
        """The metric as a reader calls it."""
        if self.metric != comparison.ACCURACY:
            return self.metric
        return f"held-out {self.score_word} on {score_benchmark(self.runs) or OWN_BENCHMARKS}"

    def table(self) -> list[comparison.CompareRow]:
        return comparison.comparison_table(self.runs, self.metric, self.baseline, lowest=self.best == "low")


def compare_selection(request: HttpRequest) -> CompareSelection | None:
    """None if no run is chosen. Unreadable values mean the default, but a run that the user may not see is 404."""
    query = ComparisonQuery.read(request.GET)
    ids = list(dict.fromkeys(query.runs))
    by_id = Run.objects.visible_to(request.user).select_related("sweep").in_bulk(ids[: comparison.MAX_RUNS])
    if "runs" in query.ignored or len(by_id) < len(ids[: comparison.MAX_RUNS]):
        raise Http404
    runs = [by_id[run_id] for run_id in ids[: comparison.MAX_RUNS]]
    if not runs:
        return None
    selection = selection_of(runs, query.metric, query.baseline, query.best, query.x)
    return replace(selection, num_requested=len(ids))


def selection_of(
    runs: list[Run],
    metric: str = "",
    baseline: str = "",
    best: Literal["", "high", "low"] = "",
    axis: comparison.Axis = "step",
) -> CompareSelection:
    """The comparison of at most MAX_RUNS of these runs; without a choice by the usual baseline and the first metric."""
    compared = runs[: comparison.MAX_RUNS]
    default = next((run for run in compared if run.algorithm == BASELINE), compared[0])
    metrics = comparison.metric_names(compared)
    metric = one_of(metric, metrics, metrics[0] if metrics else "")
    return CompareSelection(
        compared,
        len(runs),
        next((run for run in compared if str(run.pk) == baseline), default),
        metric,
        metrics,
        axis,
        best or ("low" if comparison.lowest_is_best(metric) else "high"),
    )


@require_GET
def compare(request: HttpRequest) -> HttpResponse:
    """A comparison is a view of the workspace of runs: addresses of the former page lead to it."""
    query = ComparisonQuery.read(request.GET)
    if query.runs or "runs" in query.ignored:
        compare_selection(request)  # 404 for a run that the user may not see
    x = {"step": "", "time": "elapsed"}.get(query.x, query.x)
    values = query.model_dump(mode="json", include={"runs", "metric", "baseline", "best"})
    return redirect(f"{reverse('runs:run_list')}?{encode_query(values | {'x': x, 'tab': 'compare'})}")


@require_GET
def compare_csv(request: HttpRequest) -> StreamingHttpResponse:
    """The table of the comparison."""
    selection = compare_selection(request)
    if selection is None:
        raise Http404
    lines: list[Sequence[Any]] = [CSV_HEAD]
    for row in selection.table():
        run, last = row.run, (row.last, row.last_step, row.best_difference, row.last_difference)
        names = (run.pk, run.name, run.algorithm, run.seed, "mean of all" if row.is_mean else row.agent)
        lines.append([*names, selection.metric, row.best, row.best_step, *last, selection.baseline.pk])
    return download_csv(request, lines, "comparison.csv")


def comparison_content(rows: Sequence[RunGroup], query: WorkspaceQuery) -> dict[str, Any] | None:
    """None if no row is visible. A run of a group has the group's colour, and is removed with its group."""
    visible = [row for row in rows if row.colour is not None]
    row_of = {run.pk: row for row in visible for run in row.runs}
    if not row_of:
        return None
    runs = [run for row in visible for run in row.runs]
    selection = selection_of(runs, query.metric, query.baseline, query.best)
    colours = [row_of[run.pk].colour or 0 for run in selection.runs]
    table = selection.table()
    lines = settings_diff.diff_lines(settings_diff.as_trained(selection.runs))
    axes = comparison.parallel_axes(lines)
    differing = [line for line in lines if line.path != "name" and (line.differs or settings_diff.is_partial(line))]
    differing.sort(key=lambda line: settings_diff.ABSENT in line.values)  # what all runs have comes first
    results = [comparison.result_of(table, run) for run in selection.runs]
    names = distinct_names([run.name for run in selection.runs])
    has_axes = len(axes) >= comparison.MIN_AXES
    csv = ComparisonQuery(
        runs=tuple(run.pk for run in selection.runs),
        baseline=str(selection.baseline.pk), metric=selection.metric, best=selection.best,
    )  # fmt: skip
    return {
        "choice": selection,
        "most": comparison.MAX_RUNS,
        "runs": [
            {
                "run": run,
                "short_name": name,
                "colour": colour,
                "is_baseline": run.pk == selection.baseline.pk,
                "without": _without(query, row_of[run.pk].key),
                "as_baseline": query.encode(baseline=str(run.pk)),
            }
            for run, colour, name in zip(selection.runs, colours, names, strict=True)
        ],
        "fields": [(name, value) for name, value in query.pairs if name != "metric"],
        "is_going_on": not all(run.is_terminal for run in selection.runs),
        "rows": [(colours[row.place], names[row.place], row) for row in table],
        "differing": [
            (line.path, [(value is not settings_diff.ABSENT, value) for value in line.values]) for line in differing
        ],
        "parallel": comparison.parallel_figure(names, colours, axes, results, selection.metric) if has_axes else None,
        "csv_url": f"{reverse('insight:compare_csv')}?{csv.encode()}",
    }


def _without(query: WorkspaceQuery, key: str) -> str:
    """The address with the lines of a row switched off."""
    show = [one for one in query.show.split(",") if one and one != key]
    hide = [one for one in query.hide.split(",") if one]
    return query.encode(show=",".join(show), hide=",".join(dict.fromkeys([*hide, key])))
