"""The template contexts of a board (heads with their sorting, pictures, notes) and of its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.template.loader import render_to_string
from django.utils import timezone

from hacrl_web.leaderboard.board.cells import BoardGroup, BoardTable
from hacrl_web.leaderboard.board.columns import COLUMNS, COSTS, Column
from hacrl_web.leaderboard.board.rows import NOT_RECORDED, BoardRow, facts_of_rows, values_by_name
from hacrl_web.leaderboard.board.selection import metric_formula
from hacrl_web.leaderboard.board.table import headline
from hacrl_web.leaderboard.render import figures
from hacrl_web.runs.models import Run

NAMED = 2  # rows that a sentence names; more are counted
SAME = 0.01  # relative difference of training times that means nothing


@dataclass(frozen=True)
class ColumnHead:
    """The head of a column: its name on a phone, title, second line, hover, and the address that sorts by it."""

    key: str
    label: str
    title: str
    below: str
    hover: str
    sorted_query: str
    sorted: str  # ascending, descending, or empty if it is not sorted by


def extras(table: BoardTable, *, is_brief: bool = False) -> list[Column]:
    """The columns beside the scores: the chosen ones, without a difference if there is no baseline."""
    chosen = [column for name, column in COLUMNS.items() if table.selection.has_column(name)]
    chosen = [
        replace(column, title=f"Difference to {table.baseline}", below="paired by seed")
        if column.name == "gain"
        else column
        for column in chosen
        if column.name != "gain" or table.baseline
    ]
    return [column for column in chosen if column.is_brief or not is_brief]


def heads(table: BoardTable, *, is_brief: bool = False) -> list[ColumnHead]:
    selection, formula = table.selection, metric_formula(table.selection.metric)
    columns = [(column.key, column.title, column.title, column.measured_by, formula) for column in table.columns]
    columns += [(c.name, c.label, c.title, c.below, c.hover) for c in extras(table, is_brief=is_brief)]
    sort = selection.sort or table.last.key
    order = "ascending" if sort in COSTS else "descending"
    return [
        ColumnHead(key, label, title, below, hover, selection.query(table.board, sort=key), order * (key == sort))
        for key, label, title, below, hover in columns
    ]


def pictures(table: BoardTable) -> list[dict[str, Any]]:
    """Figures with their texts; ids on the page begin with `name`."""
    entries: list[dict[str, Any]] = []
    if (figure := figures.differences(table)) is not None:
        text = "Mean over common seeds with its 95 % interval, and each seed; a filled mark has an interval without 0."
        entries.append({"name": "gain", "title": f"Difference to {table.baseline}", "text": text, "figure": figure})
    entries += [
        {
            "name": "seeds",
            "title": "Score of each seed",
            "text": "Circles: seeds; diamond: their mean with its 95 % interval; amber line: before training.",
            "figure": figures.seed_dots(table),
        },
        {
            "name": "pareto",
            "title": "Score against cost",
            "text": f"Up and to the left is better{_front_text(table)}.",
            "figure": figures.pareto(table),
        },
    ]
    grid = figures.make_grid(table)
    if grid is None:
        return entries
    text = "Mean over seeds with its 95 % interval; one line for each setting of the rest."
    figure = figures.sensitivity(table, grid)
    entries.append({"name": "sensitivity", "title": f"Sensitivity to {grid.x}", "text": text, "figure": figure})
    return entries


def _front_text(table: BoardTable) -> str:
    """The Pareto front in words; if one row is all of it, also which rows cost as little, or less by other costs."""
    on_front = figures.front(table)
    if len(on_front) > 1:
        return "; the dotted line is the Pareto front"
    if not on_front or len(table.groups) < 2:
        return ""
    top, axis = on_front[0], table.selection.cost
    text = f"; no row scores higher than {top.row.label} or costs less in {COSTS[axis]}"
    if alike := _rows_costing(table, axis, lambda gap: abs(gap) < SAME, top):
        text += f" ({alike} the same)"
    for name, words in COSTS.items():
        if name != axis and (less := _rows_costing(table, name, lambda gap: gap <= -SAME, top)):
            text += f"; in {words}, {less} less"
    return text


def _rows_costing(table: BoardTable, cost: str, is_meant: Callable[[float], bool], top: BoardGroup) -> str:
    """`gspo costs`: the other rows for whose cost, relative to the top's minus 1, `is_meant` holds."""
    of_top = top.value(cost)
    scored = [group for group in table.groups if group is not top and table.cell(group).score is not None]
    costs = [(group.row.label, group.value(cost)) for group in scored]
    names = [label for label, own in costs if of_top and own and is_meant(own / of_top - 1)]
    if len(names) > NAMED:
        return f"{len(names)} rows cost"
    return f"{' and '.join(names)} cost{'' if len(names) > 1 else 's'}" if names else ""


def board_context(table: BoardTable, key: str, *, is_compact: bool = False, is_brief: bool = False) -> dict[str, Any]:
    """The context of _board.html. key: makes the ids on the page unique.  is_compact: no single agents, no pictures.

    is_brief: fewer columns.
    """
    selection = table.selection
    return {
        "table": table,
        "board": table.board,
        "selection": selection,
        "key": key,
        "heads": heads(table, is_brief=is_brief),
        "extras": extras(table, is_brief=is_brief),
        "formula": metric_formula(selection.metric),
        "query": selection.query(table.board),
        "is_compact": is_compact,
        "headline": headline(table),
        "pictures": [] if is_compact else [one | {"id": f"{one['name']}-{key}"} for one in pictures(table)],
    }


# ---- the report: one page without scripts or anything fetched, to keep or to send ------------------------------------


@dataclass(frozen=True)
class SeedRun:
    """One run of a row; a score if it has one, else the reason."""

    row: BoardRow
    seed: int
    run: Run
    score: float | None = None
    reason: str = ""
    commit: str = ""


def seed_runs(table: BoardTable, row: BoardRow) -> list[SeedRun]:
    """Every seed of a row, those without a score included."""
    values = row.by_seed(row.agents, table.last.benchmarks, table.selection.metric)
    runs = [
        SeedRun(row, seed, result.run, values.get(seed), commit=result.versions.get("hacrl", NOT_RECORDED))
        for seed, result in row.results.items()
    ]
    runs += [SeedRun(row, seed, run, reason=run.reason) for seed, run in row.others.items()]
    return sorted(runs, key=lambda one: one.seed)


def shared_settings(rows: Sequence[BoardRow]) -> dict[str, Any]:
    """Settings in which all rows agree, by dotted path."""
    first, *rest = rows
    return {
        path: value
        for path, value in first.settings.items()
        if all(path not in row.settings or row.settings[path] == value for row in rest)
    }


def board_report(table: BoardTable, address: str) -> str:
    """The whole document. address: of the page that shows the same."""
    results = [result for row in table.board.rows for result in row.results.values()]
    context = {
        **board_context(table, "report", is_compact=True),
        "address": address,
        "made_at": timezone.now(),
        "runs": [run for group in table.groups for run in seed_runs(table, group.row)],
        "shared_settings": shared_settings([group.row for group in table.groups]) if table.groups else {},
        "versions": values_by_name(item for result in results for item in result.versions.items()),
        "facts": facts_of_rows(table.board.rows),
    }
    return render_to_string("leaderboard/report.html", context)
