"""Differences to the baseline, paired by seed, and what is best in a column: only between what was measured alike."""

from __future__ import annotations

from collections.abc import Sequence

from hacrl_web.insight.statistics import MeanInterval
from hacrl_web.leaderboard.board import identity
from hacrl_web.leaderboard.board.boards import Board
from hacrl_web.leaderboard.board.cells import BoardColumn, BoardGroup, Cell, paired
from hacrl_web.leaderboard.board.choice import NO_BASELINE
from hacrl_web.leaderboard.board.rows import BoardRow


def baseline_of(row: BoardRow, rows: Sequence[BoardRow], baseline: str) -> BoardRow | None:
    """The row to compare with: the chosen one, or the algorithm's as the same request would have had it."""
    if baseline in (NO_BASELINE, row.id, row.algorithm) or row.algorithm == identity.EVALUATION_ONLY:
        return None
    row_of_id = next((other for other in rows if other.id == baseline), None)
    if row_of_id is not None:
        return row_of_id
    settings = identity.relevant_settings(row.all_settings, baseline)
    alike = [other for other in rows if other.algorithm == baseline and other.settings == settings]
    # Of several, which differ in their facts, the one that shares most with this row.
    return max(alike, key=lambda other: len(other.facts.items() & row.facts.items()), default=None)


def is_comparable(row: BoardRow, other: BoardRow, column: BoardColumn) -> bool:
    """Whether both rows measured the same thing: same models, verifier and questions."""
    return row.models == other.models and row.facts_of(column.benchmarks) == other.facts_of(column.benchmarks)


def compare_rows(group: BoardGroup, base: BoardRow, columns: Sequence[BoardColumn], metric: str) -> None:
    """Differences on common seeds, where verifier, questions and models are the same."""
    for line in group.lines:
        agents = [line.agent] if line.agent else base.agents
        for column in columns:
            if is_comparable(group.row, base, column):
                cell = line.cells[column.key]
                cell.difference = paired(cell.by_seed, base.by_seed(agents, column.benchmarks, metric))


def baseline_words(board: Board, baseline: str) -> str:
    """The baseline's name for heads and files; empty where this board has none."""
    for row in board.with_results:
        if baseline in (row.id, row.algorithm):
            return row.label if baseline == row.id else row.algorithm
    return ""


def mark_best(groups: Sequence[BoardGroup], columns: Sequence[BoardColumn]) -> None:
    """Per column and agent, among rows of the same models, verifier and questions."""
    for column in columns:
        rivals: dict[str, list[Cell]] = {}
        for group in groups:
            if group.row.algorithm == identity.EVALUATION_ONLY:
                continue
            for line in group.lines:
                key = identity.key_of(line.agent, group.row.facts_of(column.benchmarks))
                if line.cells[column.key].by_seed:
                    rivals.setdefault(key, []).append(line.cells[column.key])
        for cells in rivals.values():
            _mark(cells)


def _mark(cells: Sequence[Cell]) -> None:
    """What no other is clearly above, on the seeds that both have; nothing where that is said of all.

    Nothing either where two of them have fewer than two seeds in common: of such a pair no interval tells anything.
    """
    gaps = [[paired(other.by_seed, cell.by_seed) for other in cells if other is not cell] for cell in cells]
    if any(gap is None or gap.half_width is None for of_cell in gaps for gap in of_cell):
        return
    top = [cell for cell, of_cell in zip(cells, gaps, strict=True) if not any(map(_is_above, of_cell))]
    if len(top) < len(cells):
        for cell in top:
            cell.mark = "best" if len(top) == 1 else "tied best"


def _is_above(gap: MeanInterval | None) -> bool:
    return gap is not None and gap.is_clear and gap.mean > 0
