"""The Compare page and its table as CSV. The address is the whole comparison. Views parse, call and render."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from hacrl_web.insight import settings_diff
from hacrl_web.insight.compare import comparison
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.scores import score_word
from hacrl_web.web.page_query import PageQuery, Text, Whole, one_of
from hacrl_web.web.streaming import download_csv
from workers.contract.spec.algorithm import BASELINE

CSV_HEAD = (
    *("run", "name", "algorithm", "seed", "agent", "metric", "best", "step_of_best", "last", "last_step"),
    *("best_minus_baseline", "last_minus_baseline", "baseline"),
)


class ComparisonQuery(PageQuery):
    """The runs, a colour for each, and how they are compared; the zoom in the address belongs to the page's script."""

    runs: tuple[UUID, ...] = ()
    baseline: Text = ""
    metric: Text = ""
    x: comparison.Axis = "step"
    best: Literal["", "high", "low"] = ""
    colour: tuple[Whole, ...] = ()


@dataclass(frozen=True)
class CompareSelection:
    """A comparison as its address chooses it."""

    runs: list[Run]
    num_requested: int
    colours: list[int]  # of the runs, by place
    baseline: Run
    metric: str
    metrics: list[str]
    axis: comparison.Axis
    best: Literal["", "high", "low"]

    def query(self, runs: list[Run] | None = None, baseline: str | None = None) -> str:
        """The address' query of this comparison, of fewer runs or to another baseline."""
        runs = self.runs if runs is None else runs
        colours = tuple(self.colours[self.runs.index(run)] for run in runs)
        return ComparisonQuery(
            runs=tuple(run.pk for run in runs),
            baseline=str(self.baseline.pk) if baseline is None else baseline,
            metric=self.metric,
            x=self.axis,
            best=self.best,
            colour=() if colours == tuple(range(len(runs))) else colours,
        ).encode()

    @property
    def score_word(self) -> str:
        """What the held-out scores of these runs are called together."""
        return score_word(self.runs)

    @property
    def title(self) -> str:
        """The metric as a reader calls it."""
        return f"held-out {self.score_word}" if self.metric == comparison.ACCURACY else self.metric

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
    # A run keeps its colour when another is taken out: the address then names the colours of the rest.
    places = range(comparison.MAX_RUNS)
    has_colours = len(query.colour) == len(runs) == len(set(query.colour)) and set(query.colour) <= set(places)
    default = next((run for run in runs if run.algorithm == BASELINE), runs[0])
    metrics = comparison.metric_names(runs)
    metric = one_of(query.metric, metrics, metrics[0] if metrics else "")
    return CompareSelection(
        runs,
        len(ids),
        list(query.colour if has_colours else places[: len(runs)]),
        next((run for run in runs if str(run.pk) == query.baseline), default),
        metric,
        metrics,
        query.x,
        query.best or ("low" if comparison.lowest_is_best(metric) else "high"),
    )


@require_GET
def compare(request: HttpRequest) -> HttpResponse:
    selection = compare_selection(request)
    if selection is None:
        return render(request, "insight/compare/compare.html", {"choice": None, "most": comparison.MAX_RUNS})
    rows = selection.table()
    lines = settings_diff.diff_lines(settings_diff.as_trained(selection.runs))
    differing = [line for line in lines if line.differs]
    axes = comparison.parallel_axes(differing)
    result = [comparison.result_of(rows, run) for run in selection.runs]
    agents = list(dict.fromkeys(name for run in selection.runs for name in run.agent_names))
    names = [run.name for run in selection.runs]
    context = {
        "choice": selection,
        "most": comparison.MAX_RUNS,
        "runs": [
            {
                "run": run,
                "colour": colour,
                "is_baseline": run.pk == selection.baseline.pk,
                "without": selection.query([other for other in selection.runs if other.pk != run.pk], baseline=""),
                "as_baseline": selection.query(baseline=str(run.pk)),
            }
            for run, colour in zip(selection.runs, selection.colours, strict=True)
        ],
        "axes": comparison.AXES,
        "is_going_on": not all(run.is_terminal for run in selection.runs),
        "rows": [(selection.colours[row.place], row) for row in rows],
        "differing": differing,
        "parallel": comparison.parallel_figure(names, selection.colours, axes, result, selection.metric)
        if axes
        else None,
        "csv_url": f"{reverse('insight:compare_csv')}?{selection.query()}",
        "agents": agents,
        "page_data": {
            "url": f"{reverse('api-1:compare_lines')}?{selection.query()}",
            "runs": [f"{run.name} ({run.algorithm}, seed {run.seed})" for run in selection.runs],
            "colours": selection.colours,
            "agents": agents,
            "metric": selection.metric,
            "axis": comparison.AXES[selection.axis],
        },
    }
    return render(request, "insight/compare/compare.html", context)


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
