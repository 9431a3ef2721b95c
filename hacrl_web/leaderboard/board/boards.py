"""Boards: the runs of some sweeps, or the runs of one group on one benchmark that were launched one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from hacrl_web.accounts.models import User
from hacrl_web.leaderboard.board.results import MEAN_OF_SAMPLES
from hacrl_web.leaderboard.board.rows import BoardRow, rows
from hacrl_web.registry.models import AgentGroup
from hacrl_web.runs.launch.create import EVALUATION_ONLY
from hacrl_web.runs.models import Run, State, Sweep
from workers.contract.demo_recipe import DemoRecipe, demo_of

MAX_RUNS = 600  # of one board, the newest: sweeps have at most 60
MAX_SWEEPS = 8
Source = Sweep | tuple[int, int]


@dataclass
class Board:
    """Rows that may be compared."""

    name: str
    sweeps: Sequence[Sweep]
    group: AgentGroup | None
    benchmark_id: int | None  # of a board of single runs
    rows: list[BoardRow]
    num_runs: int = 0
    num_left_out: int = 0  # runs older than the newest MAX_RUNS
    projects: Collection[int] = ()  # of its sweeps and runs

    @property
    def sweep(self) -> Sweep | None:
        return self.sweeps[0] if len(self.sweeps) == 1 else None

    @property
    def with_results(self) -> list[BoardRow]:
        return [row for row in self.rows if row.results]

    @property
    def benchmarks(self) -> list[str]:
        """All benchmarks of any run, the runs' own held-out questions first."""
        own: dict[str, None] = {}
        further: dict[str, None] = {}
        for row in self.with_results:
            for result in row.results.values():
                own[result.run.spec["data"]["benchmark"]] = None
                further |= dict.fromkeys(result.benchmarks)
        return list(own | further)

    @property
    def metrics(self) -> list[str]:
        """Estimates that any run recorded, with avg@k for each benchmark's own k."""
        names = {
            name
            for row in self.with_results
            for result in row.results.values()
            for scores in result.final.values()
            for score in scores.values()
            for name in score.estimates
        }
        return [MEAN_OF_SAMPLES, *sorted(name for name in names if not name.startswith("avg@"))]

    @property
    def agents(self) -> dict[str, int]:
        """Each agent's place in its run, which decides its colour."""
        return {name: place for row in reversed(self.rows) for place, name in enumerate(row.agents)}

    @property
    def source_query(self) -> list[tuple[str, str]]:
        """The parameters of an address that name this board."""
        if self.sweeps:
            return [("sweep", str(sweep.pk)) for sweep in self.sweeps]
        assert self.group is not None, "a board is of sweeps or of a group"
        return [("group", str(self.group.pk)), ("benchmark", str(self.benchmark_id))]

    @property
    def address(self) -> str:
        return urlencode(self.source_query)

    @property
    def demo(self) -> DemoRecipe | None:
        """The demo that a row is of, if any."""
        return next(filter(None, (demo_of(row.run.spec) for row in self.rows)), None)

    @property
    def is_generated(self) -> bool:
        return any(row.run.is_generated for row in self.rows)


def _newest(runs: Any) -> tuple[list[Run], int]:
    """The newest MAX_RUNS, and the number of older ones."""
    related = runs.select_related("group", "benchmark").prefetch_related("group__agents__model")
    newest = list(related.order_by("-created_at", "-pk")[: MAX_RUNS + 1])
    return newest[:MAX_RUNS], runs.count() - MAX_RUNS if len(newest) > MAX_RUNS else 0


def sweep_board(*sweeps: Sweep) -> Board:
    """The comparison of one sweep's runs, or of several sweeps'."""
    runs, num_left_out = _newest(Run.objects.filter(sweep__in=sweeps).exclude(state=State.DRAFT))
    group = runs[0].group if runs and len({run.group_id for run in runs}) == 1 else None
    name = " and ".join(sweep.name for sweep in sweeps)
    projects = {one.project_id for one in (*sweeps, *runs)}
    return Board(name, sweeps, group, None, rows(runs), len(runs), num_left_out, projects)


def alone_board(user: User, group_id: int, benchmark_id: int) -> Board | None:
    """The runs of a group on a benchmark that were launched one by one; None if there are none."""
    of_pair = Run.objects.visible_to(user).filter(sweep=None, group=group_id, benchmark=benchmark_id)
    runs, num_left_out = _newest(of_pair.exclude(state=State.DRAFT).exclude(algorithm=EVALUATION_ONLY))
    if not runs or runs[0].group is None or runs[0].benchmark is None:
        return None
    name = f"{runs[0].group.name} on {runs[0].benchmark.name}"
    projects = {run.project_id for run in runs}
    return Board(name, (), runs[0].group, benchmark_id, rows(runs), len(runs), num_left_out, projects)


def board_of(user: User, source: Source) -> Board | None:
    """The board of one source; None if its runs are gone."""
    return sweep_board(source) if isinstance(source, Sweep) else alone_board(user, *source)


def sources(user: User, search: str = "") -> list[Source]:
    """The user's sweeps, newest first, then (group, benchmark) of runs launched one by one.

    search: part of the name of a sweep, a group or a benchmark.
    """
    completed = Run.objects.listed_for(user).filter(state=State.COMPLETED)
    alone = completed.filter(sweep=None, group__isnull=False, benchmark__isnull=False)
    alone = alone.exclude(algorithm=EVALUATION_ONLY)  # these trained nothing
    named = Q(group__name__icontains=search) | Q(benchmark__name__icontains=search)
    of_sweep = completed.filter(sweep=OuterRef("pk"))
    sweeps: QuerySet[Sweep] = Sweep.objects.listed_for(user).filter(Exists(of_sweep))
    if search:
        sweeps = sweeps.filter(Q(name__icontains=search) | Exists(of_sweep.filter(named)))
        alone = alone.filter(named)
    pairs = alone.order_by().values_list("group_id", "benchmark_id").annotate(newest=Max("created_at"))
    return [*sweeps, *((group, benchmark) for group, benchmark, _ in pairs.order_by("-newest"))]


def boards(user: User, board_sources: Iterable[Source]) -> list[Board]:
    """The boards of these sources that have a score. Each costs several queries."""
    result = [board_of(user, source) for source in board_sources]
    return [board for board in result if board is not None and board.with_results]
