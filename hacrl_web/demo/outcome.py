"""The outcome of a demo in numbers, with HACPO's paired differences."""

from __future__ import annotations

from typing import Any

from hacrl_web.leaderboard.board.boards import Board, sweep_board
from hacrl_web.leaderboard.board.cells import paired
from hacrl_web.leaderboard.board.results import FINAL, START, RunResult, run_results
from hacrl_web.leaderboard.board.rows import BoardRow
from hacrl_web.leaderboard.render.exports import estimate_as_dict
from hacrl_web.runs.models import Sweep
from hacrl_web.web.statistics import MeanInterval
from workers.contract.spec.algorithm import BASELINE, DEFAULT

RISE = "start"


def _scores(row: BoardRow, when: str = FINAL) -> dict[int, float]:
    """Mean of the agents on the demo's questions by seed."""
    return row.by_seed(row.agents, [row.run.spec["data"]["benchmark"]], when=when)


def paired_differences(board: Board) -> dict[str, MeanInterval]:
    """HACPO minus each other algorithm, and minus its own start, paired by seed."""
    by_name = {row.algorithm: row for row in board.with_results}
    hacpo = by_name.pop(DEFAULT, None)
    if hacpo is None:
        return {}
    own = _scores(hacpo)
    others = {name: _scores(row) for name, row in by_name.items()} | {RISE: _scores(hacpo, START)}
    result = {name: paired(own, scores) for name, scores in others.items()}
    return {f"{DEFAULT} - {name}": gap for name, gap in result.items() if gap is not None}


def demo_summary(sweep: Sweep) -> dict[str, Any]:
    """Every run in numbers, and the paired differences."""
    runs = list(sweep.runs.order_by("created_at"))
    results = run_results(runs)
    board = sweep_board(sweep)
    gspo = next((_scores(row) for row in board.with_results if row.algorithm == BASELINE), {})
    gains = {row.algorithm: paired(_scores(row), gspo) for row in board.with_results if row.algorithm != BASELINE}
    return {
        "runs": [
            {"run": str(run.pk), "algorithm": run.algorithm, "seed": run.seed, "state": run.state}
            | (_run_numbers(results[run.pk]) if run.pk in results else {})
            for run in runs
        ],
        "gain_over_gspo": {name: gain.mean for name, gain in gains.items() if gain is not None},
        "differences": {name: estimate_as_dict(gap) for name, gap in paired_differences(board).items()},
    }


def _run_numbers(result: RunResult) -> dict[str, Any]:
    own = [result.run.spec["data"]["benchmark"]]
    return {
        "accuracy_start": result.score(result.agents, own, when=START),
        "accuracy_final": result.score(result.agents, own),
        "agents": {
            name: {"accuracy_start": result.score([name], own, when=START), "accuracy_final": result.score([name], own)}
            for name in result.agents
        },
        "rollouts": result.rollouts,
        "tokens": result.tokens,
        "training_seconds": result.training_seconds,
    }
