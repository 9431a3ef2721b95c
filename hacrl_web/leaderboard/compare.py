"""Differences to the baseline, paired by seed, and what is best in a column: only between what was measured alike."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hacrl_web.insight.estimate import estimate
from hacrl_web.leaderboard import identity
from hacrl_web.leaderboard.boards import Board
from hacrl_web.leaderboard.cells import Cell, Column, Group, paired
from hacrl_web.leaderboard.choice import NO_BASELINE
from hacrl_web.leaderboard.rows import Row


def baseline_of(row: Row, rows: Sequence[Row], baseline: str) -> Row | None:
    """The row to compare with: the chosen one, or the algorithm's as the same request would have had it."""
    if baseline in (NO_BASELINE, row.id, row.algorithm) or row.algorithm == identity.EVALUATION_ONLY:
        return None
    chosen = next((other for other in rows if other.id == baseline), None)
    if chosen is not None:
        return chosen
    wanted = identity.acting(row.all_settings, baseline)
    alike = [other for other in rows if other.algorithm == baseline and other.settings == wanted]
    # Of several, which differ in their facts, the one that shares most with this row.
    return max(alike, key=lambda other: len(other.facts.items() & row.facts.items()), default=None)


def compare(group: Group, base: Row, columns: Sequence[Column], metric: str) -> None:
    """Differences on common seeds, where verifier, questions and models are the same."""
    if group.row.models != base.models:
        return
    for line in group.lines:
        agents = [line.agent] if line.agent else base.agents
        if not set(agents) <= set(base.agents):
            continue
        for column in columns:
            if group.row.facts_of(column.benchmarks) == base.facts_of(column.benchmarks):
                cell = line.cells[column.key]
                cell.difference = paired(cell.by_seed, base.by_seed(agents, column.benchmarks, metric))


def baseline_words(board: Board, baseline: str) -> str:
    for row in board.with_results:
        if baseline in (row.id, row.algorithm):
            return row.label if baseline == row.id else row.algorithm
    return ""


def mark_best(groups: Sequence[Group], columns: Sequence[Column]) -> None:
    """Per column and agent, among rows of the same models, verifier and questions."""
    for column in columns:
        rivals: dict[str, list[Cell]] = {}
        for group in groups:
            if group.row.algorithm == identity.EVALUATION_ONLY:
                continue
            for line in group.lines:
                key = identity.key_of(group.row.models, line.agent, group.row.facts_of(column.benchmarks))
                if line.cells[column.key].by_seed:
                    rivals.setdefault(key, []).append(line.cells[column.key])
        for cells in rivals.values():
            _mark(cells)


def _mark(cells: Sequence[Cell]) -> None:
    """The highest on the seeds that all have, two or more, where its interval parts it from another one.

    Those that the interval does not part from it are tied with it; where it parts none, nothing is best.
    """
    common = sorted(set.intersection(*(set(cell.by_seed) for cell in cells)))
    if len(cells) < 2 or len(common) < 2:
        return
    top = max(cells, key=lambda cell: fmean(cell.by_seed[seed] for seed in common))
    tied = []
    for cell in cells:
        behind = estimate([top.by_seed[seed] - cell.by_seed[seed] for seed in common])
        if cell is top or (behind is not None and not behind.is_clear):
            tied.append(cell)
    if len(tied) < len(cells):
        for cell in tied:
            cell.mark = "best" if len(tied) == 1 else "tied best"
