"""Makes the Table of a board for one look at it: its columns, its rows with their differences and marks, its starts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hacrl_web.insight.statistics import MeanInterval, mean_interval
from hacrl_web.leaderboard.board import identity
from hacrl_web.leaderboard.board.boards import Board
from hacrl_web.leaderboard.board.cells import MEAN, BoardColumn, BoardGroup, BoardLine, BoardTable, Cell, StartGroup
from hacrl_web.leaderboard.board.choice import AVERAGE, BoardSelection
from hacrl_web.leaderboard.board.compare import baseline_of, baseline_words, compare_rows, mark_best
from hacrl_web.leaderboard.board.results import MEAN_OF_SAMPLES, START
from hacrl_web.leaderboard.board.rows import BoardRow


def make_table(board: Board, choice: BoardSelection) -> BoardTable:
    columns = _columns(board, choice)
    selection = [row for row in board.rows if not choice.algorithm or row.algorithm in choice.algorithm]
    groups = [BoardGroup(row, _lines(row, columns, choice.metric)) for row in selection]
    table = BoardTable(board, choice, columns, groups, unlike=_unlike(selection))
    for group in groups:
        base = baseline_of(group.row, board.with_results, choice.baseline)
        group.is_baseline = choice.baseline in (group.row.id, group.row.algorithm)
        if base is not None:
            compare_rows(group, base, columns, choice.metric)
    table.baseline = baseline_words(board, choice.baseline)
    mark_best(groups, columns)
    _sort(table)
    table.starts = _starts(selection, columns, choice.metric)
    return table


def _columns(board: Board, choice: BoardSelection) -> list[BoardColumn]:
    names = [name for name in board.benchmarks if not choice.on or name in choice.on]
    columns = [BoardColumn(name, (name,), _measured_by(board, name, choice.metric)) for name in names]
    if len(columns) != 1:
        columns.append(BoardColumn(AVERAGE, tuple(names), choice.metric))
    return columns


def _measured_by(board: Board, benchmark: str, metric: str) -> str:
    if metric != MEAN_OF_SAMPLES:
        return metric
    samples = {
        scores[benchmark].num_samples
        for row in board.with_results
        for result in row.results.values()
        for scores in result.final.values()
        if benchmark in scores
    }
    return ", ".join(f"avg@{k}" for k in sorted(samples))


def _lines(row: BoardRow, columns: Sequence[BoardColumn], metric: str) -> list[BoardLine]:
    everyone = [(MEAN, row.agents)] if len(row.agents) > 1 else []
    places = [*everyone, *((agent, [agent]) for agent in row.agents)]
    return [_line(row, name, agents, columns, metric) for name, agents in places]


def _line(row: BoardRow, name: str, agents: Sequence[str], columns: Sequence[BoardColumn], metric: str) -> BoardLine:
    cells = {}
    for column in columns:
        by_seed = row.by_seed(agents, column.benchmarks, metric)
        cells[column.key] = Cell(by_seed, mean_interval(list(by_seed.values())))
    start = None
    if row.algorithm != identity.EVALUATION_ONLY:
        start = mean_interval(list(row.by_seed(agents, columns[-1].benchmarks, metric, START).values()))
    return BoardLine(name, row.agents.index(name) if name else 0, cells, start)


def _sort(table: BoardTable) -> None:
    """Best first; costs ascending; rows without the number last."""
    sort = table.choice.sort or table.last.key

    def key(group: BoardGroup) -> tuple[bool, float, str]:
        value, sign = _sort_value(table, group, sort)
        return value is None, sign * (value or 0.0), group.row.label

    table.groups.sort(key=key)


def _sort_value(table: BoardTable, group: BoardGroup, sort: str) -> tuple[float | None, int]:
    """The number to sort by, and 1 where the lowest stands first, else -1."""
    if sort == "algorithm":
        return 0.0, 1
    if sort in ("rollouts", "tokens", "device_hours"):
        return table.cost(group.row, sort), 1
    if sort == "per_1000":
        return table.per_1000(group), -1
    if sort == "seeds":
        return float(len(group.row.seeds)), -1
    cell = group.head.cells.get(sort, table.cell(group))
    mean_interval = cell.difference if sort == "gain" else group.head.start if sort == "start" else cell.score
    return None if mean_interval is None else mean_interval.mean, -1


def _starts(rows: Sequence[BoardRow], columns: Sequence[BoardColumn], metric: str) -> list[StartGroup]:
    """One for all rows that began alike; a seed's start is the mean over those rows."""
    by_key: dict[str, list[BoardRow]] = {}
    for row in rows:
        is_training = row.algorithm != identity.EVALUATION_ONLY
        if is_training and any(result.start for result in row.results.values()):
            by_key.setdefault(row.start_key, []).append(row)
    starts = []
    for alike in by_key.values():
        agents = alike[0].agents
        everyone = [(MEAN, agents)] if len(agents) > 1 else []
        lines = []
        for name, members in [*everyone, *((agent, [agent]) for agent in agents)]:
            cells = {column.key: _start_cell(alike, members, column, metric) for column in columns}
            lines.append(BoardLine(name, agents.index(name) if name else 0, cells))
        group_only = {key: value for key, value in alike[0].told_apart_by.items() if key == "group"}
        seeds = sorted({seed for row in alike for seed, result in row.results.items() if result.start})
        starts.append(StartGroup(tuple(agents), str(group_only.get("group", "")), seeds, lines))
    return starts


def _start_cell(alike: Sequence[BoardRow], agents: Sequence[str], column: BoardColumn, metric: str) -> Cell:
    values: dict[int, list[float]] = {}
    for row in alike:
        for seed, value in row.by_seed(agents, column.benchmarks, metric, START).items():
            values.setdefault(seed, []).append(value)
    by_seed = {seed: fmean(scores) for seed, scores in sorted(values.items())}
    score = mean_interval(list(by_seed.values()))
    if score is not None and score.are_seeds_equal:
        score = MeanInterval(score.mean, None, score.count)  # the same model, asked alike: seeds have no part in it
    return Cell(by_seed, score)


def _unlike(rows: Sequence[BoardRow]) -> list[str]:
    """Facts that rows do not share, so that no difference between them is drawn."""
    differing: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.facts.items() if row.results else ():
            if not name.startswith("model of "):
                differing.setdefault(name, set()).add(value)
    return sorted(name for name, values in differing.items() if len(values) > 1)
