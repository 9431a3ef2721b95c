"""The newest board that compares anything, in short: its leader against the baseline, and the best three rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from hacrl_web.accounts.models import User
from hacrl_web.leaderboard.board.boards import board_of
from hacrl_web.leaderboard.board.cells import BoardGroup
from hacrl_web.leaderboard.board.selection import BoardSelection
from hacrl_web.leaderboard.board.table import certainty, difference, has_same_seeds, make_table
from hacrl_web.runs.launch.create import EVALUATION_ONLY
from hacrl_web.runs.models import Run, State
from hacrl_web.web.statistics import MeanInterval
from workers.contract.spec.algorithm import BASELINE

PLACES = 3
MAX_RUNS, MAX_BOARDS = 20, 3  # that are looked at


@dataclass(frozen=True)
class NewestBoard:
    """score_word: what its scores are called.  leader, baseline, difference, certainty: empty where the best row is the
    baseline or cannot be compared.  is_comparison: whether the baseline and another rule are on it.
    """

    name: str
    address: str
    benchmark: str
    is_generated: bool
    score_word: str
    places: list[BoardGroup]
    is_comparison: bool
    leader: str = ""
    baseline: str = ""
    difference: MeanInterval | None = None
    certainty: str = ""


def newest_board_of(user: User) -> NewestBoard | None:
    """The first board of the newest runs with a difference to the baseline; else the newest one.

    None before a run has completed with an evaluation of every agent.
    """
    completed = Run.objects.listed_for(user).filter(state=State.COMPLETED, score__isnull=False, archived_at=None)
    runs = completed.exclude(algorithm=EVALUATION_ONLY).order_by("-finished_at").select_related("sweep")[:MAX_RUNS]
    of_boards: dict[Any, Run] = {}
    for run in runs:
        if run.sweep is not None or (run.group_id is not None and run.benchmark_id is not None):
            of_boards.setdefault(run.sweep or (run.group_id, run.benchmark_id), run)
    newest = None
    for key, run in islice(of_boards.items(), MAX_BOARDS):
        summary = _summary(user, key, run)
        if summary is not None and summary.is_comparison:
            return summary
        newest = newest or summary
    return newest


def _summary(user: User, key: Any, run: Run) -> NewestBoard | None:
    board = board_of(user, key)
    if board is None or not board.with_results:
        return None
    table = make_table(board, BoardSelection())
    scored = [group for group in table.groups if table.cell(group).score is not None]
    if not scored:
        return None
    top = scored[0]
    summary = NewestBoard(
        board.name,
        board.address,
        table.last.words,
        board.is_generated,
        run.score_word,
        scored[:PLACES],
        top.row.algorithm == BASELINE and len(scored) > 1,
    )
    for base in scored[1:]:  # the best row against the baseline, on the seeds that both have
        if base.row.algorithm == BASELINE and (gap := difference(table, top, base)):
            words = certainty(gap, is_of_all=has_same_seeds(table, top, base))
            names: dict[str, Any] = {"leader": top.row.label, "baseline": base.row.label}
            return replace(summary, **names, is_comparison=True, difference=gap, certainty=words)
    return summary
