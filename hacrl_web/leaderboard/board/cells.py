"""The parts of a board in the form of the paper's Table 1: columns, rows with a line for each agent, and their cells.

Page, exports, pictures and report are all drawn from one BoardTable (table.py), so that they hold the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hacrl_web.leaderboard.board.boards import Board
from hacrl_web.leaderboard.board.rows import BoardRow
from hacrl_web.leaderboard.board.selection import AVERAGE, BoardSelection
from hacrl_web.web.statistics import MeanInterval, mean_interval

MEAN = ""  # in an agent's place: the mean of the row's agents
BySeed = Mapping[int, float]


@dataclass(frozen=True)
class BoardColumn:
    """One benchmark, or all of them: the key is its name or AVERAGE."""

    key: str
    benchmarks: tuple[str, ...]
    measured_by: str  # the estimate's name with its k: avg@4; several if rows had several

    @property
    def is_average(self) -> bool:
        return self.key == AVERAGE

    @property
    def title(self) -> str:
        return f"Average of {len(self.benchmarks)}" if self.is_average else self.key

    @property
    def words(self) -> str:
        """The benchmarks of its scores, in a sentence."""
        return f"the average of {len(self.benchmarks)} benchmarks" if self.is_average else self.key


@dataclass
class Cell:
    """One score: its mean over seeds, and the difference to the baseline on the seeds that both have."""

    by_seed: BySeed
    score: MeanInterval | None
    difference: MeanInterval | None = None
    gains: BySeed = field(default_factory=dict)  # the difference of each of those seeds
    mark: str = ""  # best, may be best, or nothing

    @property
    def comparison(self) -> str:
        """better, worse, unclear or one seed, which has no interval; empty without a difference."""
        if self.difference is None:
            return ""
        if self.difference.half_width is None:
            return "one seed"
        return "unclear" if not self.difference.is_clear else "better" if self.difference.mean > 0 else "worse"


@dataclass
class BoardLine:
    """One agent of a row, or the mean of its agents."""

    agent: str
    position: int
    cells: dict[str, Cell]  # by the column's key
    start: MeanInterval | None = None  # of the last column, before training

    @property
    def is_mean(self) -> bool:
        return self.agent == MEAN

    @property
    def last(self) -> Cell:
        """The cell of the average, or of the one benchmark."""
        return list(self.cells.values())[-1]


@dataclass
class BoardGroup:
    """A row with its lines: the mean of its agents if it has several, then each agent."""

    row: BoardRow
    lines: list[BoardLine]
    is_baseline: bool = False

    @property
    def head(self) -> BoardLine:
        return self.lines[0]

    def value(self, name: str) -> float | None:
        """The row's number in one of COLUMNS; costs are means over its runs."""
        if name == "seeds":
            return len(self.row.seeds)
        if name == "training_hours":
            seconds = self.row.mean_of("training_seconds")
            return None if seconds is None else seconds / 3600
        if name in ("rollouts", "tokens"):
            return self.row.mean_of(name)
        score, start, rollouts = self.head.last.score, self.head.start, self.row.mean_of("rollouts")
        if name == "per_1000":
            return (score.mean - start.mean) / rollouts * 1000 if score and start and rollouts else None
        interval = self.head.last.difference if name == "gain" else start
        return interval.mean if interval else None


@dataclass
class StartGroup:
    """Scores before training of rows with the same models, questions and evaluation: the paper's `base`.

    is_shared: whether each seed started from one score in all rows; else the lines hold the mean over the rows.
    """

    agents: tuple[str, ...]
    label: str
    seeds: list[int]
    lines: list[BoardLine]
    models: tuple[str, ...]
    is_shared: bool


@dataclass
class BoardSection:
    """Rows of one agent group, which are ranked together. title: the group's name; empty if the board has one group."""

    title: str
    groups: list[BoardGroup]
    starts: list[StartGroup]


@dataclass
class BoardTable:
    """A board as a selection shows it: its rows best first, or sorted as selected."""

    board: Board
    selection: BoardSelection
    columns: list[BoardColumn]
    groups: list[BoardGroup]
    starts: list[StartGroup] = field(default_factory=list)
    baseline: str = ""  # its name; empty without one
    unlike: list[str] = field(default_factory=list)  # facts in which rows differ

    @property
    def last(self) -> BoardColumn:
        """The column of the average, or of the one benchmark."""
        return self.columns[-1]

    @property
    def sections(self) -> list[BoardSection]:
        """The rows by the models of their agents, in the order of `groups`; scores of other models are no ranking."""
        by_models: dict[tuple[str, ...], list[BoardGroup]] = {}
        for group in self.groups:
            by_models.setdefault(group.row.models, []).append(group)
        return [
            BoardSection(
                groups[0].row.group_name if len(by_models) > 1 else "",
                groups,
                [start for start in self.starts if start.models == models],
            )
            for models, groups in by_models.items()
        ]

    @property
    def has_judges(self) -> bool:
        """Whether a judge scored or trained any of its rows."""
        return any(group.row.judged for group in self.groups)

    @property
    def has_network(self) -> bool:
        """Whether a reward function of any of its rows could use the network."""
        return any(group.row.network for group in self.groups)

    @property
    def has_intervals(self) -> bool:
        return any(
            cell.score is not None and cell.score.half_width is not None
            for group in self.groups
            for cell in group.head.cells.values()
        )

    def cell(self, group: BoardGroup) -> Cell:
        """A row's main cell: the mean of its agents in the last column."""
        return group.head.cells[self.last.key]


def paired(mine: BySeed, base: BySeed) -> MeanInterval | None:
    """Mean of the differences on the seeds that both have, with its interval."""
    common = [seed for seed in sorted(mine) if seed in base]
    scale = max((abs(by_seed[seed]) for by_seed in (mine, base) for seed in common), default=0.0)
    return mean_interval([mine[seed] - base[seed] for seed in common], scale)
