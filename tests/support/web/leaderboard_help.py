"""What the tests of the leaderboard share: sweeps whose runs have the scores that a test names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hacrl_web.leaderboard.board.boards import Board, sweep_board
from hacrl_web.leaderboard.board.cells import BoardGroup, BoardTable, Cell
from hacrl_web.leaderboard.board.selection import BoardSelection
from hacrl_web.leaderboard.board.table import make_table
from hacrl_web.runs.launch.launch import launch_sweep
from hacrl_web.runs.models import Run, State, Sweep, TelemetryEvent
from tests.support.web.factories import launch_request

Finals = Mapping[str, float]  # by agent


def sweep_of(user: Any, algorithms: Sequence[str], seeds: Sequence[int], **changes: Any) -> Sweep:
    request = launch_request(user, **changes)
    del request["algorithm"], request["seed"]
    return launch_sweep(user, {**request, "algorithms": algorithms, "seeds": seeds})


def by_name(sweep: Sweep) -> dict[tuple[str, int], Run]:
    return {(run.algorithm, run.seed): run for run in sweep.runs.all()}


def finish(
    run: Run,
    final: Finals,
    start: float = 0.1,
    rollouts: int = 1000,
    attempt: int = 1,
    seconds: float = 36.0,
    further: Mapping[str, Finals] | None = None,
    versions: Mapping[str, str] | None = None,
    **fields: Any,
) -> None:
    """Complete a run with these scores. further: of other benchmarks.  fields: further fields of its evaluations."""
    seq = attempt * 1000
    if versions:
        _event(run, seq, attempt, "started", 0, "", {"versions": dict(versions)})
    for benchmark, scores in {run.spec["data"]["benchmark"]: final, **(further or {})}.items():
        for agent, value in scores.items():
            for step, accuracy in ((run.start_step, start), (5, value)):
                seq += 1
                payload = {"benchmark": benchmark, "metric": "accuracy", "value": accuracy, "correct": 1, "asked": 100}
                _event(run, seq, attempt, "evaluation", step, agent, payload | fields)
    progress = {"rollouts_generated": rollouts, "tokens_generated": rollouts * 10, "elapsed_s": seconds}
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED, progress=progress)


def _event(run: Run, seq: int, attempt: int, kind: str, step: int, agent: str, payload: dict[str, Any]) -> None:
    TelemetryEvent.objects.create(
        run=run, seq=seq, attempt=attempt, type=kind, step=step, agent=agent, payload=payload, time=0
    )


def finished_sweep(user: Any, finals: Mapping[str, Sequence[float]], **changes: Any) -> Sweep:
    """A sweep whose algorithms reached these scores, of both agents, with the seeds 1, 2, ..."""
    seeds = range(1, 1 + max(map(len, finals.values())))
    sweep = sweep_of(user, list(finals), list(seeds), **changes)
    for (algorithm, seed), run in by_name(sweep).items():
        if seed <= len(finals[algorithm]):
            finish(run, dict.fromkeys("AB", finals[algorithm][seed - 1]))
    return sweep


def table_of(source: Sweep | Board, **choice: Any) -> BoardTable:
    board = source if isinstance(source, Board) else sweep_board(source)
    return make_table(board, BoardSelection(**choice))


def groups_of(table: BoardTable) -> dict[str, BoardGroup]:
    return {group.row.algorithm: group for group in table.groups}


def cells_of(table: BoardTable) -> dict[str, Cell]:
    """Each algorithm's cell that stands for it: the mean of its agents in the last column."""
    return {group.row.algorithm: table.cell(group) for group in table.groups}
