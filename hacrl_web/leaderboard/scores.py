"""Comparisons over completed runs: accuracy by algorithm over seeds, gain over GSPO, and what it cost. Reads only.

A board is a sweep, or the runs of one group on one benchmark that were launched one by one. Its rows are algorithms
(and, where runs of an algorithm had different settings, one row for each of them); a row's numbers are over its seeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from django.db.models import Max

from hacrl_web.insight.estimate import Estimate, estimate
from hacrl_web.runs.models import Run, State, Sweep, TelemetryEvent
from workers.spec_algorithm import OWN_EPSILONS, SEQUENCE_EPSILONS, SHARING, acts_on_shared

BASELINE = "gspo"
METRIC = "accuracy"
Source = Sweep | tuple[int, int]


@dataclass(frozen=True)
class AgentResult:
    """One agent's held-out accuracy before the first and after the last step of a run."""

    start: float
    final: float
    correct: int
    asked: int


@dataclass(frozen=True)
class RunResult:
    """One completed run in numbers; accuracies are means over its agents."""

    run: Run
    agents: dict[str, AgentResult]

    @property
    def accuracy_start(self) -> float:
        return fmean(agent.start for agent in self.agents.values())

    @property
    def accuracy_final(self) -> float:
        return fmean(agent.final for agent in self.agents.values())

    @property
    def rollouts(self) -> int:
        return int(self.run.progress.get("rollouts_generated") or 0)

    @property
    def tokens(self) -> int:
        return int(self.run.progress.get("tokens_generated") or 0)

    @property
    def device_seconds(self) -> float:
        return float(self.run.progress.get("elapsed_s") or 0.0)

    def as_dict(self) -> dict[str, Any]:
        return {
            "run": str(self.run.pk),
            "algorithm": self.run.algorithm,
            "seed": self.run.seed,
            "accuracy_start": self.accuracy_start,
            "accuracy_final": self.accuracy_final,
            "agents": {
                name: {"accuracy_start": agent.start, "accuracy_final": agent.final}
                for name, agent in self.agents.items()
            },
            "rollouts": self.rollouts,
            "tokens": self.tokens,
            "device_seconds": self.device_seconds,
        }


@dataclass(frozen=True)
class AgentRow:
    """One agent's part of a row."""

    agent: str
    start: Estimate
    final: Estimate
    gain_over_gspo: Estimate | None


@dataclass
class Row:
    """One algorithm (with one set of settings) over its seeds."""

    algorithm: str
    settings: dict[str, Any]  # what tells it from other rows of the same algorithm; mostly empty
    results: list[RunResult]
    start: Estimate
    final: Estimate
    gain_over_gspo: Estimate | None  # paired by seed: mean of (this - GSPO); None without a common seed
    rollouts: float  # means per run
    tokens: float
    device_seconds: float
    agents: list[AgentRow] = field(default_factory=list)
    is_best: bool = False  # the highest mean, or not clearly below it

    @property
    def seeds(self) -> list[int]:
        return [result.run.seed for result in self.results]

    @property
    def score_per_1000_rollouts(self) -> float | None:
        """Rise of the accuracy over the start for each 1,000 rollouts generated."""
        return (self.final.mean - self.start.mean) / self.rollouts * 1000 if self.rollouts else None


@dataclass
class Board:
    """Rows that may be compared: same group, same benchmark, best first."""

    name: str
    sweep: Sweep | None
    group: Any
    benchmark: str
    rows: list[Row]

    @property
    def agent_names(self) -> list[str]:
        return [agent.agent for agent in self.rows[0].agents] if self.rows else []

    @property
    def agent_positions(self) -> dict[str, int]:
        """Each agent's place, which is its colour."""
        return {name: place for place, name in enumerate(self.agent_names)}


def run_results(runs: Iterable[Run]) -> list[RunResult]:
    """What completed runs reached; a run without evaluations is left out."""
    completed = {run.pk: run for run in runs if run.state == State.COMPLETED}
    events = TelemetryEvent.objects.filter(run__in=list(completed), type="evaluation").order_by("attempt", "seq")
    # Later attempts and events overwrite earlier ones of the same step.
    points: dict[Any, dict[str, dict[int, dict[str, Any]]]] = {}
    for run_id, agent, step, payload in events.values_list("run_id", "agent", "step", "payload"):
        if payload.get("metric") == METRIC and payload.get("value") is not None:
            points.setdefault(run_id, {}).setdefault(agent, {})[step or 0] = payload
    found = []
    for pk, run in completed.items():
        by_agent = points.get(pk, {})
        agents = {name: _agent_result(by_agent[name]) for name in run.agent_names if by_agent.get(name)}
        if agents and len(agents) == len(run.agent_names):
            found.append(RunResult(run, agents))
    return found


def _agent_result(by_step: dict[int, dict[str, Any]]) -> AgentResult:
    first, last = by_step[min(by_step)], by_step[max(by_step)]
    return AgentResult(first["value"], last["value"], last.get("correct", 0), last.get("asked", 0))


_COMPARED = ("algorithm", "rollout", "training", "evaluation", "agents", "data")


def _settings(run: Run, algorithm: str) -> dict[str, Any]:
    """Settings that make a row of its own, by dotted path, without what `algorithm` has no use for.

    An epsilon that a run leaves empty is the algorithm's own: a row of its own only where the number differs.
    """
    found: dict[str, Any] = {}
    for section in _COMPARED:
        value = run.spec.get(section)
        if isinstance(value, dict):
            found |= {f"{section}.{key}": item for key, item in value.items()}
        else:
            found[section] = value
    found.pop("algorithm.name", None)
    own = OWN_EPSILONS.get(algorithm, SEQUENCE_EPSILONS)
    for path, epsilon in zip(("algorithm.epsilon", "algorithm.epsilon_high"), own, strict=True):
        if found.get(path) is None:
            found[path] = epsilon
    return found if algorithm in SHARING else _without_cross(found)


def _without_cross(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that act where nothing is shared."""

    def is_cross(path: str) -> bool:
        section, _, name = path.partition(".")
        return section == "algorithm" and acts_on_shared(name)

    return {path: value for path, value in settings.items() if not is_cross(path)}


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def _differences(settings: dict[str, Any], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The settings of `settings` in which any of `others` is different."""
    return {k: v for k, v in settings.items() if k not in ("agents",) and any(o.get(k) != v for o in others)}


def _paired(mine: dict[int, float], base: dict[int, float]) -> Estimate | None:
    return estimate([mine[seed] - base[seed] for seed in sorted(mine) if seed in base])


def _row(results: list[RunResult], base: list[RunResult] | None, settings: dict[str, Any]) -> Row:
    """One row; `base`: GSPO's results under the same settings of those it has, None where this is GSPO itself."""

    def by_seed(some: list[RunResult], agent: str | None = None) -> dict[int, float]:
        return {r.run.seed: r.accuracy_final if agent is None else r.agents[agent].final for r in some}

    def over(values: Iterable[float]) -> Estimate:
        found = estimate(list(values))
        assert found is not None, "a row has at least one run"
        return found

    def gain(agent: str | None = None) -> Estimate | None:
        if base is None or any(agent is not None and agent not in b.agents for b in base):
            return None
        return _paired(by_seed(results, agent), by_seed(base, agent))

    agents = [
        AgentRow(
            name,
            over(r.agents[name].start for r in results),
            over(r.agents[name].final for r in results),
            gain(name),
        )
        for name in results[0].agents
    ]
    return Row(
        algorithm=results[0].run.algorithm,
        settings=settings,
        results=results,
        start=over(r.accuracy_start for r in results),
        final=over(r.accuracy_final for r in results),
        gain_over_gspo=gain(),
        rollouts=fmean(r.rollouts for r in results),
        tokens=fmean(r.tokens for r in results),
        device_seconds=fmean(r.device_seconds for r in results),
        agents=agents,
    )


def rows(runs: Iterable[Run]) -> list[Row]:
    """Rows of runs on the same group and benchmark, best first; of several runs with one seed the newest counts."""
    newest: dict[tuple[str, str, int], RunResult] = {}
    settings: dict[str, dict[str, Any]] = {}
    for result in sorted(run_results(runs), key=lambda r: r.run.created_at):
        own = _settings(result.run, result.run.algorithm)
        key = _key(own)
        settings[key] = own
        newest[result.run.algorithm, key, result.run.seed] = result
    grouped: dict[tuple[str, str], list[RunResult]] = {}
    for (algorithm, key, _), result in sorted(newest.items(), key=lambda item: item[0][2]):
        grouped.setdefault((algorithm, key), []).append(result)
    found = []
    for (algorithm, key), results in grouped.items():
        others = [settings[k] for a, k in grouped if a == algorithm and k != key]
        # GSPO as the same request would have had it
        as_base = _key(_settings(results[0].run, BASELINE))
        base = None if algorithm == BASELINE else grouped.get((BASELINE, as_base))
        found.append(_row(results, base, _differences(settings[key], others)))
    found.sort(key=lambda row: -row.final.mean)
    _mark_best(found)
    return found


def _mark_best(found: list[Row]) -> None:
    """The best row, and those that the same seeds cannot tell from it; none before all have two or more, the same."""
    if len(found) < 2 or len(found[0].seeds) < 2 or any(row.seeds != found[0].seeds for row in found):
        return
    best = found[0]
    top = {r.run.seed: r.accuracy_final for r in best.results}
    for row in found:
        difference = _paired({r.run.seed: r.accuracy_final for r in row.results}, top)
        row.is_best = row is best or (difference is not None and not difference.is_clear)


def sweep_board(sweep: Sweep) -> Board:
    """The comparison of one sweep's completed runs."""
    runs = list(sweep.runs.select_related("group").order_by("created_at"))
    group = runs[0].group if runs else None
    benchmark = runs[0].spec["data"]["benchmark"] if runs else ""
    return Board(sweep.name, sweep, group, benchmark, rows(runs))


def _alone(user: Any) -> Any:
    """Completed runs that were launched one by one."""
    return Run.objects.visible_to(user).filter(
        state=State.COMPLETED, sweep=None, group__isnull=False, benchmark__isnull=False
    )


def sources(user: Any) -> list[Source]:
    """What the user's boards are made of, newest sweep first, then (group, benchmark) of runs launched one by one."""
    sweeps = Sweep.objects.visible_to(user).filter(runs__state=State.COMPLETED).distinct()
    pairs = _alone(user).order_by().values_list("group_id", "benchmark_id").annotate(newest=Max("created_at"))
    return [*sweeps, *((group, benchmark) for group, benchmark, _ in pairs.order_by("-newest"))]


def boards(user: Any, chosen: Iterable[Source] | None = None) -> list[Board]:
    """The boards of these sources (all of them, where none are chosen) that have a row: each costs several queries."""
    found = []
    for source in sources(user) if chosen is None else chosen:
        if isinstance(source, Sweep):
            found.append(sweep_board(source))
            continue
        runs = list(_alone(user).filter(group=source[0], benchmark=source[1]).select_related("group", "benchmark"))
        if runs:
            group, benchmark = runs[0].group, runs[0].benchmark
            found.append(Board(group.name, None, group, benchmark.name, rows(runs)))
    return [board for board in found if board.rows]
