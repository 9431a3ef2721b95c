"""What the workspace shows of the comparison of its visible runs: results, differences to a baseline, settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.urls import reverse

from hacrl_web.insight import settings_diff
from hacrl_web.insight.compare import comparison
from hacrl_web.insight.compare.views import ComparisonQuery, selection_of
from hacrl_web.runs.workspace.query import WorkspaceQuery
from hacrl_web.runs.workspace.rows import RunGroup
from hacrl_web.web.short_names import distinct_names


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
