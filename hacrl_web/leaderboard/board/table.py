"""The table of a board under one selection: columns, rows with differences and marks, starts, headline."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hacrl_web.leaderboard.board.boards import Board
from hacrl_web.leaderboard.board.cells import (
    MEAN,
    BoardColumn,
    BoardGroup,
    BoardLine,
    BoardTable,
    Cell,
    StartGroup,
    paired,
)
from hacrl_web.leaderboard.board.columns import COLUMNS, COSTS
from hacrl_web.leaderboard.board.results import ACCURACY, MEAN_OF_SAMPLES, START
from hacrl_web.leaderboard.board.row_settings import EVALUATION_ONLY, settings_under
from hacrl_web.leaderboard.board.rows import BoardRow, facts_of_rows, key_of
from hacrl_web.leaderboard.board.selection import AVERAGE, NO_BASELINE, BoardSelection
from hacrl_web.web.statistics import MeanInterval, mean_interval
from workers.contract import number_format
from workers.contract.spec.algorithm import DEFAULT
from workers.contract.verifier_kinds import score_word


def make_table(board: Board, selection: BoardSelection) -> BoardTable:
    columns = _columns(board, selection)
    rows = [row for row in board.rows if not selection.algorithm or row.algorithm in selection.algorithm]
    groups = [BoardGroup(row, _lines(row, columns, selection.metric)) for row in rows]
    unlike = [
        name for name, values in facts_of_rows(rows).items() if len(values) > 1 and not name.startswith("model of ")
    ]
    table = BoardTable(board, selection, columns, groups, unlike=unlike)
    for group in groups:
        base = baseline_of(group.row, board.with_results, selection.baseline)
        group.is_baseline = selection.baseline in (group.row.id, group.row.algorithm)
        if base is not None:
            compare_rows(group, base, columns, selection.metric)
    table.baseline = baseline_words(board, selection.baseline)
    mark_best(groups, columns)
    _sort(table)
    table.starts = _starts(rows, columns, selection.metric)
    return table


def _columns(board: Board, selection: BoardSelection) -> list[BoardColumn]:
    names = [name for name in board.benchmarks if not selection.on or name in selection.on]
    columns = [BoardColumn(name, (name,), _measured_by(board, name, selection.metric)) for name in names]
    if len(columns) != 1:
        columns.append(BoardColumn(AVERAGE, tuple(names), selection.metric))
    return columns


def _measured_by(board: Board, benchmark: str, metric: str) -> str:
    if metric != MEAN_OF_SAMPLES:
        return metric
    scores = [
        scores[benchmark]
        for row in board.with_results
        for result in row.results.values()
        for scores in result.final.values()
        if benchmark in scores
    ]
    names = ", ".join(f"avg@{k}" for k in sorted({score.num_samples for score in scores}))
    word = score_word(score.verifier for score in scores)
    return names if word == ACCURACY else f"{names}, {word}"


def _lines(row: BoardRow, columns: Sequence[BoardColumn], metric: str) -> list[BoardLine]:
    lines = []
    for place, name, agents in _line_agents(row.agents):
        cells = {}
        for column in columns:
            by_seed = row.by_seed(agents, column.benchmarks, metric)
            cells[column.key] = Cell(by_seed, mean_interval(list(by_seed.values())))
        start = None
        if row.algorithm != EVALUATION_ONLY:
            start = mean_interval(list(row.by_seed(agents, columns[-1].benchmarks, metric, START).values()))
        lines.append(BoardLine(name, place, cells, start))
    return lines


def _line_agents(agents: Sequence[str]) -> list[tuple[int, str, Sequence[str]]]:
    """(position, name, agents) of each line: the mean of several agents first, then each agent."""
    mean = [(0, MEAN, agents)] if len(agents) > 1 else []
    return [*mean, *((place, agent, [agent]) for place, agent in enumerate(agents))]


def _sort(table: BoardTable) -> None:
    """Sort within each agent group, the group launched first on top: best first, costs ascending, rows without the
    number last, and scores by a judge after all verified ones.
    """
    sort = table.selection.sort or table.last.key
    models = list(dict.fromkeys(row.models for row in table.board.rows))

    def key(group: BoardGroup) -> tuple[int, bool, bool, float, str]:
        value, sign = _sort_value(table, group, sort)
        is_judged = bool(group.row.score_judges)
        return models.index(group.row.models), is_judged, value is None, sign * (value or 0.0), group.row.label

    table.groups.sort(key=key)


def _sort_value(table: BoardTable, group: BoardGroup, sort: str) -> tuple[float | None, int]:
    """The number to sort by, and 1 if the lowest comes first, else -1."""
    if sort == "algorithm":
        return 0.0, 1
    if sort in COLUMNS:
        return group.value(sort), 1 if sort in COSTS else -1
    score = group.head.cells.get(sort, table.cell(group)).score
    return None if score is None else score.mean, -1


def _starts(rows: Sequence[BoardRow], columns: Sequence[BoardColumn], metric: str) -> list[StartGroup]:
    """The starts of the rows: one for all rows that start alike; a seed's start is the mean over these rows."""
    by_key: dict[str, list[BoardRow]] = {}
    for row in rows:
        is_training = row.algorithm != EVALUATION_ONLY
        if is_training and any(result.start for result in row.results.values()):
            by_key.setdefault(row.start_key, []).append(row)
    starts = []
    for alike in by_key.values():
        lines, is_shared = [], True
        for place, name, agents in _line_agents(alike[0].agents):
            line = BoardLine(name, place, {})
            for column in columns:
                values: dict[int, list[float]] = {}
                for row in alike:
                    for seed, value in row.by_seed(agents, column.benchmarks, metric, START).items():
                        values.setdefault(seed, []).append(value)
                is_shared &= all(max(of_seed) - min(of_seed) < 1e-9 for of_seed in values.values())
                line.cells[column.key] = _start_cell({seed: fmean(of_seed) for seed, of_seed in sorted(values.items())})
            lines.append(line)
        seeds = sorted({seed for row in alike for seed, result in row.results.items() if result.start})
        label = str(alike[0].distinctions.get("group", ""))
        starts.append(StartGroup(tuple(alike[0].agents), label, seeds, lines, alike[0].models, is_shared))
    return starts


def _start_cell(by_seed: dict[int, float]) -> Cell:
    score = mean_interval(list(by_seed.values()))
    if score is not None and score.are_seeds_equal:
        score = MeanInterval(score.mean, None, score.count)  # the same model, measured alike: seeds do not matter
    return Cell(by_seed, score)


# ---- differences to the baseline, and the best of a column: only between rows that were measured alike ---------------


def baseline_of(row: BoardRow, rows: Sequence[BoardRow], baseline: str) -> BoardRow | None:
    """The row to compare with: the one of this id, or this algorithm's row with the same settings."""
    if baseline in (NO_BASELINE, row.id, row.algorithm) or row.algorithm == EVALUATION_ONLY:
        return None
    row_of_id = next((other for other in rows if other.id == baseline), None)
    if row_of_id is not None:
        return row_of_id
    # Settings that only one of the two algorithms has do not part them.
    settings = settings_under(row.all_settings, row.algorithm, baseline)
    alike = [other for other in rows if other.algorithm == baseline and settings.items() <= other.settings.items()]
    # Of several, which differ in their facts, the one that shares most with this row.
    return max(alike, key=lambda other: len(other.facts.items() & row.facts.items()), default=None)


def is_comparable(row: BoardRow, other: BoardRow, column: BoardColumn) -> bool:
    """Whether both rows measured the same thing: same models, verifier and questions."""
    return row.models == other.models and row.facts_of(column.benchmarks) == other.facts_of(column.benchmarks)


def compare_rows(group: BoardGroup, base: BoardRow, columns: Sequence[BoardColumn], metric: str) -> None:
    """Differences on common seeds, if verifier, questions and models are the same."""
    for line in group.lines:
        agents = [line.agent] if line.agent else base.agents
        for column in columns:
            if is_comparable(group.row, base, column):
                cell = line.cells[column.key]
                own, others = cell.by_seed, base.by_seed(agents, column.benchmarks, metric)
                cell.difference = paired(own, others)
                cell.gains = {seed: own[seed] - others[seed] for seed in own.keys() & others.keys()}


def baseline_words(board: Board, baseline: str) -> str:
    """The baseline's name in headings and files; empty if this board has no such row."""
    for row in board.with_results:
        if baseline in (row.id, row.algorithm):
            return row.label if baseline == row.id else row.algorithm
    return ""


def mark_best(groups: Sequence[BoardGroup], columns: Sequence[BoardColumn]) -> None:
    """Mark the best scores in each column for each agent, among rows of the same models, verifier and questions."""
    for column in columns:
        rivals: dict[str, list[Cell]] = {}
        for group in groups:
            if group.row.algorithm == EVALUATION_ONLY:
                continue
            for line in group.lines:
                key = key_of(line.agent, group.row.facts_of(column.benchmarks))
                if line.cells[column.key].by_seed:
                    rivals.setdefault(key, []).append(line.cells[column.key])
        for cells in rivals.values():
            _mark(cells)


def _mark(cells: Sequence[Cell]) -> None:
    """Mark the cells that no other is clearly above on the seeds that both have, unless those are all.

    Mark none if two of them have fewer than two seeds in common: their difference has no interval.
    """
    gaps = [[paired(other.by_seed, cell.by_seed) for other in cells if other is not cell] for cell in cells]
    top = []
    for cell, gaps_to_others in zip(cells, gaps, strict=True):
        intervals = [gap for gap in gaps_to_others if gap is not None and gap.half_width is not None]
        if len(intervals) < len(gaps_to_others):
            return
        if not any(gap.is_clear and gap.mean > 0 for gap in intervals):
            top.append(cell)
    if len(top) < len(cells):
        for cell in top:
            cell.mark = "best" if len(top) == 1 else "may be best"


# ---- the headline ---------------------------------------------------------------------------------------------------


GROUP = "group"  # the distinction that the sentence of a group begins with
UNCLEAR = "; the interval contains 0: no clear difference"


def headline(table: BoardTable) -> str:
    """`hacpo leads with 0.705 on math: +0.221 ± 0.050 (95 %, 3 seeds) over gspo (0.484), with 1.9 times the ...`

    The best row *leads* where every difference has an interval without 0, and else *is highest*. The best row of the
    default algorithm is always compared with the baseline, even if another leads. A sentence for each agent group;
    empty without two rows that can be compared.
    """
    sentences = [(section.title, _headline_of(table, section.groups)) for section in table.sections]
    return " ".join(f"{title}: {words}" if title else words for title, words in sentences if words)


def _headline_of(table: BoardTable, groups: Sequence[BoardGroup]) -> str:
    scored = [group for group in groups if table.cell(group).by_seed]
    scored.sort(key=lambda group: (bool(group.row.score_judges), -_mean(table, group)))
    if not scored:
        return ""
    top, rest = scored[0], scored[1:]
    baseline = [group for group in rest if group.is_baseline]
    beside = {group.row.id: group for group in [*baseline, *rest[:1]]}
    gaps = [(gap, words) for group in beside.values() for gap, words in _over(table, top, group)]
    if not gaps:
        return ""
    verb = "leads" if all(gap.is_clear for gap, _ in gaps) else "is highest"
    leader = f"{top.row.label_without(GROUP)} {verb} with {_score(table, top)} on {table.last.words}"
    text = f"{leader}: {'; '.join(words for _, words in gaps)}."
    ours = next((group for group in scored if group.row.algorithm == DEFAULT), top)
    if ours is not top and baseline:
        for _, words in _over(table, ours, baseline[0]):
            text += f" {ours.row.label_without(GROUP)} has {_score(table, ours)}: {words}."
    return text


def _mean(table: BoardTable, group: BoardGroup) -> float:
    score = table.cell(group).score
    return score.mean if score else 0.0


def _score(table: BoardTable, group: BoardGroup) -> str:
    return number_format.format_score(_mean(table, group))


def difference(table: BoardTable, top: BoardGroup, other: BoardGroup) -> MeanInterval | None:
    """The difference of two rows on their common seeds; None if they measured other things, or share no seed."""
    is_alike = is_comparable(top.row, other.row, table.last) and top.row.agents == other.row.agents
    return paired(table.cell(top).by_seed, table.cell(other).by_seed) if is_alike else None


def has_same_seeds(table: BoardTable, top: BoardGroup, other: BoardGroup) -> bool:
    return table.cell(top).by_seed.keys() == table.cell(other).by_seed.keys()


def _over(table: BoardTable, top: BoardGroup, other: BoardGroup) -> list[tuple[MeanInterval, str]]:
    """The difference of `top` to another row, and its words with how certain it is; none if not comparable."""
    if (gap := difference(table, top, other)) is None:
        return []
    width = f" ± {number_format.format_score(gap.half_width)}" if gap.half_width else ""
    basis = _basis(gap, is_of_all=has_same_seeds(table, top, other))
    text = f"{number_format.format_signed_score(gap.mean)}{width} ({basis})"
    text += f" over {other.row.label_without(GROUP)} ({_score(table, other)})"
    # Not the time: it depends on what else their devices did.
    mine, theirs = (group.value("rollouts") for group in (top, other))
    if mine and theirs:
        ratio = number_format.format_significant(mine / theirs, 2)
        text += ", with equal rollouts" if ratio == "1.0" else f", with {ratio} times the rollouts"
    return [(gap, text)]


def _basis(gap: MeanInterval, *, is_of_all: bool) -> str:
    common = "" if is_of_all else " in common"
    if gap.half_width is None:
        return f"one seed{common}: no interval"
    if gap.are_seeds_equal:
        return f"all {gap.count} seeds{common} equal"
    return f"95 %, {gap.count} seeds{common}{'' if gap.is_clear else UNCLEAR}"


def certainty(gap: MeanInterval, *, is_of_all: bool) -> str:
    """What the interval of a difference is over, and whether it contains 0: `95 % interval over 2 seeds.`

    is_of_all: both rows have the same seeds, so the difference is that of their means.
    """
    if gap.half_width is None or gap.are_seeds_equal:
        basis = _basis(gap, is_of_all=is_of_all)
        return f"{basis[0].upper()}{basis[1:]}."
    seeds = f"{gap.count} seeds{'' if is_of_all else ' in common'}"
    return f"95 % interval over {seeds}{'' if gap.is_clear else ', which contains 0: no clear difference'}."
