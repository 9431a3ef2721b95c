"""Runs as rows: one algorithm under one set of settings and facts, over its seeds, whatever became of each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from hacrl_web.leaderboard.board import identity
from hacrl_web.leaderboard.board.results import FINAL, MEAN_OF_SAMPLES, RunResult, run_results
from hacrl_web.runs.models import Run, State

NOT_EVALUATED = "not evaluated"  # completed, but without a score of every agent
TO_COME = "to come"
LABEL_LETTERS = 24


@dataclass
class BoardRow:
    """One algorithm over its seeds. A seed's newest completed run counts; where none has completed, its newest run."""

    id: str
    algorithm: str
    all_settings: Mapping[str, Any]  # by dotted path
    settings: Mapping[str, Any]  # those that act
    facts: Mapping[str, str]
    results: dict[int, RunResult]  # by seed, ascending
    others: dict[int, Run]  # seeds without a result
    num_replaced: int = 0  # runs whose seed was run again
    told_apart_by: dict[str, Any] = field(default_factory=dict)  # settings and facts that other rows do not share

    @property
    def run(self) -> Run:
        """One of its runs, for what all of them share."""
        return next(iter(self.results.values())).run if self.results else next(iter(self.others.values()))

    @property
    def agents(self) -> list[str]:
        return self.run.agent_names

    @property
    def start_key(self) -> str:
        return identity.start_key(self.all_settings, self.facts)

    @property
    def models(self) -> tuple[str, ...]:
        """Where the agents' models lie: rows that differ in it are of different groups."""
        return tuple(agent["model"] for agent in self.run.spec["agents"])

    @property
    def benchmark(self) -> str:
        """The one whose training questions it learns from."""
        return str(self.run.spec["data"]["benchmark"])

    def facts_of(self, benchmarks: Sequence[str]) -> list[str]:
        """Models, verifier and questions behind the scores on these benchmarks: only what agrees in it is compared."""
        names = [f"model of {agent}" for agent in self.agents]
        names += [f"{kind} of {name}" for name in benchmarks for kind in ("verifier", "questions")]
        return [*self.models, *(self.facts.get(name, "") for name in names)]

    @property
    def label(self) -> str:
        """Its algorithm and what tells it from its like, in one line."""
        return self.label_without("")

    def label_without(self, setting: str) -> str:
        """The same without one setting: of a line in a picture whose axis it is."""
        differences = ", ".join(f"{plain_path(p)} {_short(v)}" for p, v in self.told_apart_by.items() if p != setting)
        return f"{self.algorithm} ({differences})" if differences else self.algorithm

    @property
    def seeds(self) -> list[int]:
        return list(self.results)

    @property
    def num_planned(self) -> int:
        return len(self.results) + len(self.others)

    @property
    def missing(self) -> list[str]:
        """What became of the seeds without a result: `1 of 3 seeds failed`."""
        counts = Counter(_outcome(run) for run in self.others.values())
        return [f"{count} of {self.num_planned} seeds {fate}" for fate, count in sorted(counts.items())]

    @property
    def commits(self) -> list[str]:
        """Versions of the code that trained it; more than one is said on the page."""
        return sorted({result.versions.get("hacrl") or identity.NOT_RECORDED for result in self.results.values()})

    def by_seed(
        self, agents: Sequence[str], benchmarks: Sequence[str], metric: str = MEAN_OF_SAMPLES, when: str = FINAL
    ) -> dict[int, float]:
        """The mean over these agents and benchmarks by seed, of the seeds that have it."""
        values = {seed: result.score(agents, benchmarks, metric, when) for seed, result in self.results.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def mean_of(self, cost: str) -> float | None:
        """Mean per run of `rollouts`, `tokens` or `device_seconds`."""
        return fmean(getattr(result, cost) for result in self.results.values()) if self.results else None


def plain_path(path: str) -> str:
    """A setting for people: the algorithm's own need no section before them."""
    return path.removeprefix("algorithm.")


def _short(value: Any) -> str:
    """A value for a label; a digest is known by its ends."""
    text = str(value)
    return text if len(text) <= LABEL_LETTERS else f"{text[:8]}…{text[-4:]}"


def _outcome(run: Run) -> str:
    if run.state == State.COMPLETED:
        return NOT_EVALUATED
    return run.state if run.is_terminal else TO_COME


def rows(runs: Iterable[Run]) -> list[BoardRow]:
    """Rows in the order in which they were launched; drafts are nobody's."""
    ordered = sorted((run for run in runs if run.state != State.DRAFT), key=lambda run: run.created_at)
    results = run_results(ordered)
    by_id: dict[str, BoardRow] = {}
    without: list[tuple[Run, BoardRow]] = []
    for run in ordered:
        algorithm = identity.algorithm_of(run)
        every = identity.all_settings(run)
        settings = identity.relevant_settings(every, algorithm)
        models, result = identity.model_facts(run), results.get(run.pk)
        facts = models | (identity.score_facts(result) if result else {})
        key = identity.key_of(algorithm, settings, facts)
        row = by_id.setdefault(key, BoardRow(identity.row_id(key), algorithm, every, settings, facts, {}, {}))
        if result is None:
            without.append((run, row))
        else:
            row.num_replaced += run.seed in row.results
            row.results[run.seed] = result
    for run, row in without:
        _place(run, row, list(by_id.values()))
    planned = [row for row in by_id.values() if row.num_planned]
    for row in planned:
        row.results = dict(sorted(row.results.items()))
        _tell_apart(row, [other for other in planned if other is not row])
    return planned


def _place(run: Run, own: BoardRow, every: Sequence[BoardRow]) -> None:
    """A run without scores has no facts of them: it belongs to the newest row of its settings and models that has."""
    alike = [row for row in every if row.results and _is_row_of(row, own)]
    row = alike[-1] if alike else own
    if any(run.seed in other.results for other in alike):
        row.num_replaced += 1
    else:
        row.num_replaced += run.seed in row.others
        row.others[run.seed] = run


def _is_row_of(row: BoardRow, of_run: BoardRow) -> bool:
    is_same = row.algorithm == of_run.algorithm and row.settings == of_run.settings
    return is_same and of_run.facts.items() <= row.facts.items()


def _tell_apart(row: BoardRow, others: Sequence[BoardRow]) -> None:
    """Group and own benchmark where rows differ in them; settings only among rows of the same algorithm on the same.

    Facts are told where any rows of the same models differ in them.
    """
    alike = [other for other in others if other.models == row.models]
    on_same = [other for other in alike if other.benchmark == row.benchmark]
    rivals = [other for other in on_same if other.algorithm == row.algorithm]
    row.told_apart_by = identity.differing_facts(row.settings, [other.settings for other in rivals])
    if len(alike) < len(others):
        row.told_apart_by["group"] = row.run.group.name if row.run.group else " + ".join(row.agents)
    if len(on_same) < len(alike):
        row.told_apart_by["benchmark"] = row.benchmark
    row.told_apart_by |= {
        name: value for name, value in row.facts.items() if any(o.facts.get(name, value) != value for o in alike)
    }
