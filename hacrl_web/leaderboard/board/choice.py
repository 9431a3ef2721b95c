"""How a board is looked at: everything that its address says, and the addresses of other looks at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from urllib.parse import urlencode

from django.http import QueryDict

from hacrl_web.leaderboard.board.boards import Board
from hacrl_web.leaderboard.board.results import MEAN_OF_SAMPLES

BASELINE = "gspo"
NO_BASELINE = "none"
AVERAGE = "/average"  # the column over all shown benchmarks; no benchmark has a slash in its name
SHOWN = {"score": "scores", "difference": "differences to the baseline"}
# Columns beside the benchmarks, in their order on the page.
EXTRA = {
    "seeds": "Seeds",
    "gain": "Difference to the baseline",
    "start": "Start",
    "rollouts": "Rollouts per run",
    "tokens": "Tokens per run",
    "device_hours": "Device-hours per run",
    "per_1000": "Score gained per 1,000 rollouts",
}
COSTS = {
    "rollouts": "rollouts generated per run",
    "tokens": "tokens generated per run",
    "device_hours": "device-hours per run",
}
# By family of estimates.
FORMULAS = {
    "avg": "mean over questions of the share of their k samples that are right",
    "pass": "mean over questions of 1 − C(n − c, k) / C(n, k), c of their n samples being right: without bias",
    "maj": "mean over questions of the chance that the most frequent answer of their k samples is right; of t equally "
    "frequent ones each wins with 1 / t",
    "best": "share of questions that at least one of the k samples solves: the paper's best@k",
}


def metric_formula(metric: str) -> str:
    """What an estimate is, for the hover."""
    return f"{metric}: {FORMULAS.get(metric.partition('@')[0], 'as its runs recorded it')}"


@dataclass(frozen=True)
class BoardSelection:
    """A look at a board; the defaults are the look without a word in the address."""

    metric: str = MEAN_OF_SAMPLES
    baseline: str = BASELINE  # an algorithm (of each row's own settings), a row's id, or none
    show: str = "score"
    on: tuple[str, ...] = ()  # benchmarks that are columns; empty: all
    algorithm: tuple[str, ...] = ()  # whose rows are shown; empty: all
    column: tuple[str, ...] = ()  # which of EXTRA; empty: all
    sort: str = ""  # a benchmark, AVERAGE, one of EXTRA or `algorithm`; empty: the last score column
    cost: str = "rollouts"  # axis of the Pareto picture
    x: str = ""  # setting on the axis of the sensitivity picture; empty: the first that varies
    y: str = ""  # second setting, of the heat map
    reported: str = ""  # the group of the paper whose rows stand below

    def query(self, board: Board, **changes: str | Iterable[str]) -> str:
        """The address' query of this look with some of it changed."""
        return urlencode(self.words(board, **changes))

    def words(self, board: Board, **changes: str | Iterable[str]) -> list[tuple[str, str]]:
        """Name and value of each word of the address, defaults left out."""
        changed = {name: value if isinstance(value, str) else tuple(value) for name, value in changes.items()}
        new = replace(self, **changed)  # type: ignore[arg-type]
        words: list[tuple[str, str]] = list(board.source_query)
        for one in fields(new):
            value = getattr(new, one.name)
            if value != one.default:
                words += [(one.name, item) for item in ([value] if isinstance(value, str) else value)]
        return words

    def has_column(self, name: str) -> bool:
        return not self.column or name in self.column


def read_choice(query: QueryDict, board: Board) -> BoardSelection:
    """What the address says; what this board does not have is as if it were not said."""
    benchmarks, algorithms = board.benchmarks, {row.algorithm for row in board.rows}
    usual = BoardSelection()

    def one(name: str, possible: Iterable[str]) -> str:
        value = query.get(name, "")
        return value if value in possible else str(getattr(usual, name))

    def several(name: str, possible: Iterable[str]) -> tuple[str, ...]:
        texts = set(query.getlist(name))
        values = tuple(value for value in possible if value in texts)
        return () if len(values) == len(list(possible)) else values

    return BoardSelection(
        metric=one("metric", board.metrics),
        baseline=one("baseline", {NO_BASELINE, *algorithms, *(row.id for row in board.rows)}),
        show=one("show", SHOWN),
        on=several("on", benchmarks),
        algorithm=several("algorithm", sorted(algorithms)),
        column=several("column", EXTRA),
        sort=one("sort", {AVERAGE, "algorithm", *EXTRA, *benchmarks}),
        cost=one("cost", COSTS),
        x=query.get("x", "")[:200],
        y=query.get("y", "")[:200],
        reported=query.get("reported", "")[:200],
    )


def baseline_labels(board: Board) -> Mapping[str, str]:
    """What can be the baseline -> its words: none, each algorithm, and each row where an algorithm has several."""
    names = [row.algorithm for row in board.with_results]
    labels = {NO_BASELINE: "none"} | {name: name for name in dict.fromkeys(names)}
    return labels | {row.id: row.label for row in board.with_results if names.count(row.algorithm) > 1}
