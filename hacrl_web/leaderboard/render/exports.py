"""The board as CSV and JSON, with unrounded numbers. LaTeX is in latex.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hacrl_web.leaderboard.board import paper
from hacrl_web.leaderboard.board.cells import BoardGroup, BoardLine, BoardTable, Cell
from hacrl_web.leaderboard.board.columns import OF_RUN
from hacrl_web.leaderboard.board.rows import BoardRow
from hacrl_web.leaderboard.board.selection import metric_formula
from hacrl_web.web.statistics import MeanInterval

MEASURED = "measured"
INTERVALS = "95 % confidence intervals of means over seeds (Student's t); not corrected for the number of comparisons"


# CSV: a line for each agent, and one for their mean


def csv_rows(table: BoardTable, section: paper.PaperSection | None) -> Iterator[list[Any]]:
    """The heading, then the rows, each filled up to the heading's length with empty cells."""
    head = _csv_head(table)
    yield head
    for cells in _csv_rows(table, section):
        yield [*cells, *[""] * (len(head) - len(cells))]


def _csv_rows(table: BoardTable, section: paper.PaperSection | None) -> Iterator[list[Any]]:
    for group in table.groups:
        for line in group.lines:
            yield _csv_cells(table, group, line)
    for start in table.starts:
        for line in start.lines:
            who = [MEASURED, "", "start", "", line.agent or "mean", " ".join(map(str, start.seeds)), "", ""]
            yield [*who, *_csv_scores(table, line)]
    for reported in section.lines if section else ():
        source = f"reported ({paper.SOURCE}, Table {reported.table})"
        printed = {name: reported.score(column) for name, column in section.columns} if section else {}
        scores = [value for column in table.columns for value in (printed.get(column.key, ""), *[""] * 6)]
        yield [source, "", reported.algorithm, reported.group, reported.agent, "", "", "", *scores]


def _csv_head(table: BoardTable) -> list[str]:
    names = ["source", "row", "algorithm", "differs in", "agent", "seeds", "seeds launched", "without a score"]
    for column in table.columns:
        name = f"{column.title} {column.measured_by}"
        names += [name, f"{name} ±", f"{name} seeds", f"{name} mark"]
        base = table.baseline or "baseline"
        names += [f"{name} minus {base}", f"{name} minus {base} ±", f"{name} verdict"]
    return [*names, "start", *(column.csv or column.name for column in OF_RUN)]


def _csv_cells(table: BoardTable, group: BoardGroup, line: BoardLine) -> list[Any]:
    row = group.row
    differences = "; ".join(f"{path} = {value}" for path, value in row.distinctions.items())
    who = [MEASURED, row.id, row.algorithm, differences, line.agent or "mean", " ".join(map(str, row.seeds))]
    costs = [group.value(column.name) if line is group.head else "" for column in OF_RUN]
    start = None if line.start is None else line.start.mean
    return [*who, row.num_planned, "; ".join(row.missing), *_csv_scores(table, line), start, *costs]


def _csv_scores(table: BoardTable, line: BoardLine) -> list[Any]:
    values: list[Any] = []
    for cell in (line.cells[column.key] for column in table.columns):
        score, gap = cell.score, cell.difference
        values += [score.mean, score.half_width, score.count] if score else [None, None, 0]
        values += [cell.mark, *([gap.mean, gap.half_width] if gap else [None, None]), cell.comparison]
    return values


# JSON: the numbers with the runs, settings and facts behind them


def board_as_json(table: BoardTable, section: paper.PaperSection | None, address: str) -> dict[str, Any]:
    """`address`: of the page that shows the same."""
    return {
        "board": table.board.name,
        "address": address,
        "metric": table.selection.metric,
        "formula": metric_formula(table.selection.metric),
        "intervals": INTERVALS,
        "baseline": table.baseline or None,
        "columns": [
            {"title": column.title, "benchmarks": list(column.benchmarks), "measured_by": column.measured_by}
            for column in table.columns
        ],
        "rows": [_json_row(table, group) for group in table.groups],
        "starts": [
            {
                "agents": list(start.agents),
                "seeds": start.seeds,
                "lines": [_json_line(table, line) for line in start.lines],
            }
            for start in table.starts
        ],
        "reported": _json_reported(section),
    }


def _json_row(table: BoardTable, group: BoardGroup) -> dict[str, Any]:
    row = group.row
    return {
        "id": row.id,
        "algorithm": row.algorithm,
        "label": row.label,
        "told_apart_by": row.distinctions,
        "seeds_launched": row.num_planned,
        "without_a_score": row.missing,
        "lines": [_json_line(table, line) for line in group.lines],
        **{column.json or column.name: group.value(column.name) for column in OF_RUN},
        "facts": dict(row.facts),
        "settings": dict(row.settings),
        "runs": provenance(row),
    }


def _json_line(table: BoardTable, line: BoardLine) -> dict[str, Any]:
    cells = {column.title: line.cells[column.key] for column in table.columns}
    return {
        "agent": line.agent or None,
        "start": None if line.start is None else line.start.mean,
        "scores": {name: _json_cell(cell) for name, cell in cells.items()},
    }


def _json_cell(cell: Cell) -> dict[str, Any]:
    return {
        "score": estimate_as_dict(cell.score),
        "by_seed": {str(seed): value for seed, value in cell.by_seed.items()},
        "mark": cell.mark or None,
        "difference": estimate_as_dict(cell.difference),
        "verdict": cell.comparison or None,
    }


def estimate_as_dict(estimate: MeanInterval | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"mean": estimate.mean, "half_width": estimate.half_width, "seeds": estimate.count}


def provenance(row: BoardRow) -> list[dict[str, Any]]:
    """Every run of a row: with the versions it used, or without a score and with the reason."""
    runs = [
        {"seed": seed, "run": str(result.run.pk), "state": result.run.state, "versions": dict(result.versions)}
        for seed, result in row.results.items()
    ]
    return runs + [
        {"seed": seed, "run": str(run.pk), "state": run.state, "reason": run.reason} for seed, run in row.others.items()
    ]


def _json_reported(section: paper.PaperSection | None) -> dict[str, Any] | None:
    if section is None:
        return None
    lines = []
    for line in section.lines:
        scores = {name: line.score(column) for name, column in section.columns}
        lines.append({"agent": line.agent, "algorithm": line.algorithm, "scores": scores})
    return {"source": paper.SOURCE, "table": section.key, "lines": lines}
