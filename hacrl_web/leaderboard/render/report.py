"""The report of a sweep: one page that stands alone, without scripts or anything fetched, to keep or to send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from django.utils import timezone

from hacrl_web.leaderboard.board.cells import BoardTable
from hacrl_web.leaderboard.board.choice import metric_formula
from hacrl_web.leaderboard.board.identity import NOT_RECORDED
from hacrl_web.leaderboard.board.rows import BoardRow
from hacrl_web.leaderboard.render import view


@dataclass(frozen=True)
class SeedRun:
    """One run behind a row; a score where it has one, else the reason."""

    algorithm: str
    seed: int
    state: str
    score: float | None
    reason: str
    commit: str


def seed_runs(table: BoardTable, row: BoardRow) -> list[SeedRun]:
    """Every seed of a row, those without a score included."""
    values = row.by_seed(row.agents, table.last.benchmarks, table.choice.metric)
    runs = [
        SeedRun(row.label, seed, result.run.state, values.get(seed), "", result.versions.get("hacrl", NOT_RECORDED))
        for seed, result in row.results.items()
    ]
    runs += [SeedRun(row.label, seed, run.state, None, run.reason, "") for seed, run in row.others.items()]
    return sorted(runs, key=lambda one: one.seed)


def shared_settings(rows: Sequence[BoardRow]) -> dict[str, Any]:
    """Settings in which all rows agree, by dotted path."""
    first, *rest = rows
    return {
        path: value
        for path, value in first.settings.items()
        if all(path not in row.settings or row.settings[path] == value for row in rest)
    }


def versions_of_runs(rows: Sequence[BoardRow]) -> dict[str, list[str]]:
    """package -> the versions that the runs started with."""
    by_name: dict[str, set[str]] = {}
    for row in rows:
        for result in row.results.values():
            for name, version in result.versions.items():
                by_name.setdefault(name, set()).add(version)
    return {name: sorted(values) for name, values in sorted(by_name.items())}


def facts(rows: Sequence[BoardRow]) -> dict[str, list[str]]:
    """Verifier, questions and models -> their states over all rows."""
    by_name: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.facts.items() if row.results else ():
            by_name.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in sorted(by_name.items())}


def board_report(table: BoardTable, address: str) -> str:
    """The whole document. address: of the page that shows the same."""
    context = {
        **view.context(table, "report", is_compact=True),
        "address": address,
        "made_at": timezone.now(),
        "formula": metric_formula(table.choice.metric),
        "runs": [run for group in table.groups for run in seed_runs(table, group.row)],
        "shared_settings": shared_settings([group.row for group in table.groups]) if table.groups else {},
        "versions": versions_of_runs(table.board.rows),
        "facts": facts(table.board.rows),
    }
    return render_to_string("leaderboard/report.html", context)
