"""How far a demo is, and its outcome: in words, and in numbers with HACPO's paired differences."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from hacrl_web.leaderboard.board.boards import Board, sweep_board
from hacrl_web.leaderboard.board.cells import paired
from hacrl_web.leaderboard.board.results import FINAL, START, RunResult, run_results
from hacrl_web.leaderboard.board.rows import BoardRow
from hacrl_web.leaderboard.render.exports import estimate_as_dict
from hacrl_web.runs.models import HELD, State, Sweep
from hacrl_web.runs.sweeps.state import state_of
from hacrl_web.web.statistics import MeanInterval
from workers.contract import number_format
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


def progress_line(sweep: Sweep) -> str:
    """`  27 of 200 steps: hacpo 24/40, accuracy 0.531; gspo 3/40, accuracy 0.182; 3 wait; about 2 min 05 s left`."""
    state = state_of(sweep)
    parts = []
    for run in state.in_state(*HELD):
        parts.append(f"{run.algorithm} {f'{run.step}/{run.total_steps}' if run.step else 'starts'}")
        parts[-1] += f", accuracy {number_format.format_score(run.score)}" if run.score is not None else ""
    if waiting := len(state.in_state(State.QUEUED)):
        parts.append(f"{waiting} wait")
    if state.eta_s is not None:
        parts.append(f"about {number_format.format_duration(state.eta_s)} left")
    figures = state.progress()
    return f"  {figures['steps']} of {figures['total_steps']} steps: {'; '.join(parts)}"


def outcome_lines(sweep: Sweep) -> list[str]:
    """The difference of HACPO to GSPO, if both have ended; then the score of every rule and what has not completed."""
    board = sweep_board(sweep)
    benchmark = next((row.run.spec["data"]["benchmark"] for row in board.with_results), "")
    scores = {row.algorithm: fmean(values.values()) for row in board.with_results if (values := _scores(row))}
    scores = dict(sorted(scores.items(), key=lambda item: -item[1]))
    words = {name: number_format.format_score(score) for name, score in scores.items()}
    lines = []
    if gap := paired_differences(board).get(f"{DEFAULT} - {BASELINE}"):
        width = gap.half_width
        certainty = "one seed: no interval" if width is None else f"± {width:.3f}, 95 %, {gap.count} seeds"
        difference = f"{number_format.format_signed_score(gap.mean)} ({certainty})"
        lines.append(
            f"Sharing (hacpo) minus no sharing (gspo): {difference}, held-out accuracy {words[DEFAULT]} and "
            f"{words[BASELINE]} on {benchmark}."
        )
    counts = [f"{count} {state}" for state, count in state_of(sweep).counts.items() if state != State.COMPLETED]
    ranked = ", ".join(f"{name} {score}" for name, score in words.items())
    lines.append("; ".join(filter(None, [f"All rules: {ranked}" if ranked else "", *counts])) + ".")
    return lines
