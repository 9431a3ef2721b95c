"""What an address says of a board: which one it is, and how it is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import urlencode

from django.http import QueryDict
from pydantic import model_validator

from hacrl_web.accounts.models import User
from hacrl_web.leaderboard.board.boards import MAX_SWEEPS, Board, alone_board, sweep_board
from hacrl_web.leaderboard.board.columns import COLUMNS
from hacrl_web.leaderboard.board.results import MEAN_OF_SAMPLES
from hacrl_web.runs.models import Sweep
from hacrl_web.web.page_query import PageQuery, RowId, Text, one_of
from workers.contract.spec.algorithm import BASELINE

NO_BASELINE = "none"
AVERAGE = "/average"  # the column over all shown benchmarks; no benchmark has a slash in its name
CELL_CONTENTS = {"score": "scores", "difference": "differences to the baseline"}
# By family of estimates.
FORMULAS = {
    "avg": "mean over questions of the share of their k samples that are correct",
    "pass": "mean over questions of 1 − C(n − c, k) / C(n, k), c of their n samples being correct: without bias",
    "maj": "mean over questions of the chance that the most frequent answer of their k samples is correct; of t "
    "equally frequent ones each wins with 1 / t",
    "best": "share of questions that at least one of the k samples solves: the paper's best@k",
}


def metric_formula(metric: str) -> str:
    """What an estimate is, for the hover."""
    return f"{metric}: {FORMULAS.get(metric.partition('@')[0], 'as its runs recorded it')}"


def _renamed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_renamed(one) for one in value]
    return "training_hours" if value == "device_hours" else value


class BoardSelection(PageQuery):
    """What a board shows; the defaults are those of an address that only names the board."""

    metric: Text = MEAN_OF_SAMPLES
    baseline: Text = BASELINE  # an algorithm (of each row's own settings), a row's id, or none
    show: Literal["score", "difference"] = "score"
    on: tuple[Text, ...] = ()  # benchmarks that are columns; empty: all
    algorithm: tuple[Text, ...] = ()  # whose rows are shown; empty: all
    column: tuple[Text, ...] = ()  # which of COLUMNS; empty: all
    sort: Text = ""  # a benchmark, AVERAGE, one of COLUMNS or `algorithm`; empty: the last score column
    cost: Literal["rollouts", "tokens", "training_hours"] = "rollouts"  # axis of the Pareto picture
    x: Text = ""  # setting on the axis of the sensitivity picture; empty: the first that varies
    reported: Text = ""  # the group of the paper whose rows are shown below

    @model_validator(mode="before")
    @classmethod
    def _earlier_words(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Saved addresses name hours of training device_hours."""
        names = ("cost", "sort", "column")
        return values | {name: _renamed(values[name]) for name in names if name in values}

    def parameters(self, board: Board, **changes: str) -> list[tuple[str, str]]:
        """Name and value of each parameter of this board's address with some changed, defaults left out."""
        values = self.model_dump(exclude_defaults=True) | changes
        lists = {name: [value] if isinstance(value, str) else value for name, value in values.items()}
        return [*board.source_query, *((name, item) for name, items in lists.items() for item in items if item)]

    def query(self, board: Board, **changes: str) -> str:
        """The query of this board's address with some parameters changed."""
        return urlencode(self.parameters(board, **changes))

    def has_column(self, name: str) -> bool:
        return not self.column or name in self.column


def read_selection(query: QueryDict, board: Board) -> BoardSelection:
    """The selection of an address; a value that this board does not have counts as absent."""
    named, algorithms = BoardSelection.read(query), sorted({row.algorithm for row in board.rows})
    baselines = {NO_BASELINE, *algorithms, *(row.id for row in board.rows)}
    return named.model_copy(
        update={
            "metric": one_of(named.metric, board.metrics, MEAN_OF_SAMPLES),
            "baseline": one_of(named.baseline, baselines, BASELINE),
            "on": _some_of(named.on, board.benchmarks),
            "algorithm": _some_of(named.algorithm, algorithms),
            "column": _some_of(named.column, COLUMNS),
            "sort": one_of(named.sort, {AVERAGE, "algorithm", *COLUMNS, *board.benchmarks}),
        }
    )


def _some_of(values: Iterable[str], possible: Collection[str]) -> tuple[str, ...]:
    """The possible ones among these values; empty if they are all."""
    some = tuple(value for value in possible if value in set(values))
    return () if len(some) == len(possible) else some


def baseline_labels(board: Board) -> Mapping[str, str]:
    """Possible baseline -> its label: none, each algorithm, and each row of an algorithm with several."""
    names = [row.algorithm for row in board.with_results]
    labels = {NO_BASELINE: "none"} | {name: name for name in dict.fromkeys(names)}
    return labels | {row.id: row.label for row in board.with_results if names.count(row.algorithm) > 1}


class BoardAddress(PageQuery):
    """What names a board, `sweep` (up to 8) or `group` and `benchmark`, and a row; BoardSelection has the rest."""

    sweep: tuple[RowId, ...] = ()
    group: tuple[RowId, ...] = ()
    benchmark: tuple[RowId, ...] = ()
    row: Text = ""


def board_at(address: QueryDict, user: User) -> Board | None:
    """The board that the query of an address names; None if there is none, or the user may not see all of it."""
    query = BoardAddress.read(address)
    if query.ignored:
        return None
    if query.sweep:
        ids = dict.fromkeys(query.sweep)
        by_id = Sweep.objects.visible_to(user).in_bulk(list(ids)) if len(ids) <= MAX_SWEEPS else {}
        return sweep_board(*(by_id[pk] for pk in ids)) if len(by_id) == len(ids) else None
    if query.group and query.benchmark:
        return alone_board(user, query.group[0], query.benchmark[0])
    return None
