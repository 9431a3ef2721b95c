"""The Compare page and its table as CSV. The whole comparison is its address. Views parse, call and render."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from hacrl_web.insight import settings_diff
from hacrl_web.insight.compare import comparison, parallel
from hacrl_web.runs.models import Run
from hacrl_web.web.streaming import csv_cell, download

BEST = ("high", "low")
COLOURS = [str(place) for place in range(comparison.MAX_RUNS)]
CSV_HEAD: tuple[str, ...] = (
    "run",
    "name",
    "algorithm",
    "seed",
    "agent",
    "metric",
    "best",
    "step_of_best",
    "last",
    "last_step",
)
CSV_HEAD += ("best_minus_baseline", "last_minus_baseline")


@dataclass(frozen=True)
class CompareSelection:
    """What an address asks for."""

    runs: list[Run]
    num_asked: int
    colours: list[int]  # of the runs, by place
    baseline: Run
    metric: str
    metrics: list[str]
    axis: str
    best: str

    def query(self, **changes: Any) -> str:
        """The address of this comparison, but for the changes."""
        parameters = {
            "baseline": str(self.baseline.pk),
            "metric": self.metric,
            "x": self.axis,
            "best": self.best,
        } | changes
        runs = parameters.pop("runs", self.runs)
        places = [self.runs.index(run) for run in runs]
        pairs = [("runs", str(run.pk)) for run in runs] + [pair for pair in parameters.items() if pair[1]]
        colours = [self.colours[place] for place in places]
        if colours != list(range(len(runs))):
            pairs += [("colour", str(colour)) for colour in colours]
        return urlencode(pairs)


def runs_of(request: HttpRequest) -> tuple[list[Run], int]:
    """The chosen runs in the order of the address, at most MAX_RUNS, and how many were asked for. A run that the user
    may not see, or that is none, is 404.
    """
    try:
        ids = list(dict.fromkeys(UUID(text) for text in request.GET.getlist("runs")))
    except ValueError:
        raise Http404 from None
    first_ids = ids[: comparison.MAX_RUNS]
    by_id = Run.objects.visible_to(request.user).select_related("sweep").in_bulk(first_ids)
    if len(by_id) < len(first_ids):
        raise Http404
    return [by_id[run_id] for run_id in first_ids], len(ids)


def colours_of(request: HttpRequest, num_runs: int) -> list[int]:
    """The colour of each run: its place, or what the address says, so that a run keeps it when another is taken out."""
    colours = [int(text) for text in request.GET.getlist("colour") if text in COLOURS]
    is_sound = len(colours) == num_runs == len(set(colours))
    return colours if is_sound else list(range(num_runs))


def compare_selection(request: HttpRequest) -> CompareSelection | None:
    """None where no run is chosen. Odd values of the rest mean what is usual."""
    runs, num_asked = runs_of(request)
    if not runs:
        return None
    usual = next((run for run in runs if run.algorithm == settings_diff.BASELINE), runs[0])
    baseline = next((run for run in runs if str(run.pk) == request.GET.get("baseline", "")), usual)
    metrics = comparison.metric_names(runs)
    metric = request.GET.get("metric", "")
    if metric not in metrics:
        metric = metrics[0] if metrics else ""
    axis = request.GET.get("x", "")
    best = request.GET.get("best", "")
    return CompareSelection(
        runs,
        num_asked,
        colours_of(request, len(runs)),
        baseline,
        metric,
        metrics,
        axis if axis in comparison.AXES else "step",
        best if best in BEST else "low" if comparison.lowest_is_best(metric) else "high",
    )


@require_GET
def compare(request: HttpRequest) -> HttpResponse:
    """`runs` (up to 8), `colour` (one for each), `baseline`, `metric`, `x`, `best`.

    `low` and `high` are the zoom, which belongs to the page's script.
    """
    selection = compare_selection(request)
    if selection is None:
        return render(request, "insight/compare.html", {"choice": None, "most": comparison.MAX_RUNS})
    rows = comparison.comparison_table(
        selection.runs, selection.metric, selection.baseline, lowest=selection.best == "low"
    )
    lines = settings_diff.diff_lines([settings_diff.effective(run) for run in selection.runs])
    differing = [line for line in lines if line.differs]
    drawn = parallel.axes(differing)
    result = [comparison.result_of(rows, run) for run in selection.runs]
    agents = list(dict.fromkeys(name for run in selection.runs for name in run.agent_names))
    names = [run.name for run in selection.runs]
    context = {
        "choice": selection,
        "most": comparison.MAX_RUNS,
        "runs": [_shown(selection, place, run) for place, run in enumerate(selection.runs)],
        "axes": comparison.AXES,
        "is_going_on": not all(run.is_terminal for run in selection.runs),
        "rows": [(selection.colours[row.place], row) for row in rows],
        "differing": differing,
        "parallel": parallel.figure(names, selection.colours, drawn, result, selection.metric) if drawn else None,
        "num_undrawn": len(differing) - len(drawn),
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
    return render(request, "insight/compare.html", context)


def _shown(selection: CompareSelection, place: int, run: Run) -> dict[str, Any]:
    """A run of the comparison with the addresses that take it out or make it the baseline."""
    others = [other for other in selection.runs if other.pk != run.pk]
    return {
        "run": run,
        "colour": selection.colours[place],
        "is_baseline": run.pk == selection.baseline.pk,
        "without": selection.query(runs=others, baseline=""),
        "as_baseline": selection.query(baseline=str(run.pk)),
    }


@require_GET
def compare_csv(request: HttpRequest) -> StreamingHttpResponse:
    """The table of the comparison."""
    selection = compare_selection(request)
    if selection is None:
        raise Http404
    rows = comparison.comparison_table(
        selection.runs, selection.metric, selection.baseline, lowest=selection.best == "low"
    )

    def lines() -> Iterator[str]:
        yield _line([*CSV_HEAD, "baseline"])
        for row in rows:
            run, last = row.run, (row.last, row.last_step, row.best_difference, row.last_difference)
            who = (run.pk, run.name, run.algorithm, run.seed, "mean of all" if row.is_mean else row.agent)
            yield _line([*who, selection.metric, row.best, row.best_step, *last, selection.baseline.pk])

    return download(request, lines(), "comparison.csv", "text/csv")


def _line(cells: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow([csv_cell(cell) for cell in cells])
    return text.getvalue()
