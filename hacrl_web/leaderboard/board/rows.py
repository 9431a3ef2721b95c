"""Runs as rows: one algorithm under one set of settings and facts, over its seeds.

Facts are the verifier's version, the digest of the questions and the state of the models. A change in any setting that
acts or in any fact makes another row; a run of an earlier version, which recorded no facts, has its own row.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from statistics import fmean
from typing import Any
from uuid import UUID

from hacrl_web.leaderboard.board.results import FINAL, MEAN_OF_SAMPLES, RunResult, run_results
from hacrl_web.leaderboard.board.row_settings import (
    Settings,
    acts_on_start,
    algorithm_of,
    all_settings,
    relevant_settings,
)
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.models import Run, State
from hacrl_web.runs.telemetry.ended_run_cache import cached_by_run
from hacrl_web.runs.variants.varied import short_names, value_text
from hacrl_web.web.short_names import distinct_names
from workers.contract.spec.reward_function import NETWORK_KEY
from workers.contract.verifier_kinds import JUDGED

NOT_RECORDED = "not recorded"
NOT_EVALUATED = "not evaluated"  # completed, but without a score of every agent
TO_COME = "to come"
LABEL_LETTERS = 24


@dataclass
class BoardRow:
    """One algorithm over its seeds. A seed's newest completed run counts; if none has completed, its newest run."""

    id: str
    algorithm: str
    all_settings: Mapping[str, Any]  # by dotted path
    settings: Mapping[str, Any]  # those that act
    facts: Mapping[str, str]
    results: dict[int, RunResult]  # by seed, ascending
    others: dict[int, Run]  # seeds without a result
    num_replaced: int = 0  # runs whose seed was run again
    distinctions: dict[str, Any] = field(default_factory=dict)  # settings and facts that other rows do not share
    short: dict[str, str] = field(default_factory=dict)  # their values in labels

    @property
    def run(self) -> Run:
        """A run of the row, to read what all of its runs share."""
        return next(iter(self.results.values())).run if self.results else next(iter(self.others.values()))

    @property
    def agents(self) -> list[str]:
        return self.run.agent_names

    @property
    def start_key(self) -> str:
        """A key that is equal for rows that started from the same scores."""
        return key_of({path: value for path, value in self.all_settings.items() if acts_on_start(path)}, self.facts)

    @property
    def models(self) -> tuple[str, ...]:
        """Locations of the agents' models: rows that differ in them are of different groups."""
        return tuple(agent["model"] for agent in self.run.spec["agents"])

    @property
    def group_name(self) -> str:
        return self.run.group.name if self.run.group else " + ".join(self.agents)

    @property
    def benchmark(self) -> str:
        """The one whose training questions it learns from."""
        return str(self.run.spec["data"]["benchmark"])

    def facts_of(self, benchmarks: Sequence[str]) -> list[str]:
        """Models, verifier and questions of the scores on these benchmarks: rows are compared if these are equal."""
        names = [f"model of {agent}" for agent in self.agents]
        names += [f"{kind} of {name}" for name in benchmarks for kind in ("verifier", "questions")]
        return [*self.models, *(self.facts.get(name, "") for name in names)]

    @property
    def score_judges(self) -> list[str]:
        """The judges that gave the scores: opinions of a model, which stand apart from verified scores."""
        return sorted({label.partition("/")[2] for name, label in self.facts.items() if _is_judged(name, label)})

    @property
    def judged(self) -> str:
        """Which judges scored or trained its runs, in words; empty if all is verified."""
        terms = self.run.spec.get("rewards", {}).get("terms", ())
        trained = sorted({PurePath(term["judge"]).stem for term in terms if term.get("judge")})
        parts = [f"scored by {', '.join(self.score_judges)}, not verified"] if self.score_judges else []
        return "; ".join([*parts, *([f"trained with {', '.join(trained)}"] if trained else [])])

    @property
    def network(self) -> list[str]:
        """The reward functions that could use the network in its runs, which cannot be repeated exactly."""
        recorded = (result.versions.get(NETWORK_KEY, "") for result in self.results.values())
        return sorted({label for labels in recorded for label in labels.split(", ") if label})

    @property
    def label(self) -> str:
        """The algorithm and the distinctions of the row, in one line."""
        return self.label_without("")

    def label_without(self, setting: str) -> str:
        """The label without one setting, for a line in a picture whose axis it is. As variants of sweeps are named."""
        values = {path: self.short.get(path, _cut(value)) for path, value in self.distinctions.items()}
        values = {plain_path(path): value for path, value in values.items() if path != setting}
        if any(" " in part for pair in values.items() for part in pair):  # a fact or a name, not a setting
            return f"{self.algorithm} ({', '.join(map(' '.join, values.items()))})"
        names = short_names(list(values))
        return " ".join([self.algorithm, *(f"{names[path]}={_number(value)}" for path, value in values.items())])

    @property
    def seeds(self) -> list[int]:
        return list(self.results)

    @property
    def num_planned(self) -> int:
        return len(self.results) + len(self.others)

    @property
    def missing(self) -> list[str]:
        """The outcomes of the seeds without a result: `1 of 3 seeds failed`."""
        counts = Counter(_outcome(run) for run in self.others.values())
        return [f"{count} of {self.num_planned} seeds {outcome}" for outcome, count in sorted(counts.items())]

    @property
    def commits(self) -> list[str]:
        """Versions of the code that trained its runs; the page warns of more than one."""
        return sorted({result.versions.get("hacrl") or NOT_RECORDED for result in self.results.values()})

    def by_seed(
        self, agents: Sequence[str], benchmarks: Sequence[str], metric: str = MEAN_OF_SAMPLES, when: str = FINAL
    ) -> dict[int, float]:
        """The mean over these agents and benchmarks by seed, of the seeds that have it."""
        values = {seed: result.score(agents, benchmarks, metric, when) for seed, result in self.results.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def mean_of(self, cost: str) -> float | None:
        """Mean per run of `rollouts`, `tokens` or `training_seconds`."""
        return fmean(getattr(result, cost) for result in self.results.values()) if self.results else None


def plain_path(path: str) -> str:
    """A setting's path as pages show it: without the section for settings of the algorithm."""
    return path.removeprefix("algorithm.")


def _number(text: str) -> str:
    """1.0 as 1, as variants of sweeps write it; other texts as they are."""
    try:
        return value_text(float(text))
    except ValueError:
        return text


def _shorten(rows: Sequence[BoardRow]) -> None:
    """Gives long values of distinctions short forms that differ: `…2 agents` and `…3 agents`."""
    for path in dict.fromkeys(path for row in rows for path in row.distinctions):
        own = [row for row in rows if path in row.distinctions]
        texts = [str(row.distinctions[path]) for row in own]
        for row, text in zip(own, distinct_names(texts), strict=True):
            row.short[path] = text if len(set(texts)) > 1 and " " in text else _cut(text)


def _cut(value: Any) -> str:
    """A value for a label: of a digest both ends."""
    text = str(value)
    return text if len(text) <= LABEL_LETTERS else f"{text[:8]}…{text[-4:]}"


def _outcome(run: Run) -> str:
    if run.state == State.COMPLETED:
        return NOT_EVALUATED
    return run.state if run.is_terminal else TO_COME


def rows(runs: Iterable[Run]) -> list[BoardRow]:
    """Rows in the order in which they were launched, without drafts."""
    ordered = sorted((run for run in runs if run.state != State.DRAFT), key=lambda run: run.created_at)
    results, settings_of = run_results(ordered), cached_by_run("settings", ordered, _settings)
    by_id: dict[str, BoardRow] = {}
    without: list[tuple[Run, BoardRow]] = []
    for run in ordered:
        algorithm, (every, settings) = algorithm_of(run), settings_of[run.pk]
        models, result = model_facts(run), results.get(run.pk)
        facts = models | (score_facts(result) if result else {})
        key = key_of(algorithm, settings, facts)
        row_id = hashlib.sha256(key.encode()).hexdigest()[:10]  # short and stable, for addresses
        row = by_id.setdefault(row_id, BoardRow(row_id, algorithm, every, settings, facts, {}, {}))
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
        _set_distinctions(row, [other for other in planned if other is not row])
    _shorten(planned)
    return planned


def _settings(runs: Iterable[Run]) -> dict[UUID, tuple[Settings, Settings]]:
    """All settings of each run, and those that act on its results."""
    every = {run.pk: (all_settings(run), algorithm_of(run)) for run in runs}
    return {pk: (settings, relevant_settings(settings, algorithm)) for pk, (settings, algorithm) in every.items()}


def _place(run: Run, own: BoardRow, every: Sequence[BoardRow]) -> None:
    """Put a run without scores, and so without facts of them, into the newest row with its settings and models."""
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


def _set_distinctions(row: BoardRow, others: Sequence[BoardRow]) -> None:
    """Group and benchmark if any row differs, facts if a row of the same models does, and settings if one of
    the same models, benchmark and algorithm does.
    """
    alike = [other for other in others if other.models == row.models]
    on_same = [other for other in alike if other.benchmark == row.benchmark]
    rivals = [other for other in on_same if other.algorithm == row.algorithm]
    row.distinctions = differing_settings(row, rivals)
    if len(alike) < len(others):
        row.distinctions["group"] = row.group_name
    if len(on_same) < len(alike):
        row.distinctions["benchmark"] = row.benchmark
    row.distinctions |= {
        name: value for name, value in row.facts.items() if any(o.facts.get(name, value) != value for o in alike)
    }
    if row.judged:  # always: no reader takes a model's opinion for a verified score
        row.distinctions["judge"] = row.judged


def _is_judged(name: str, label: str) -> bool:
    return name.startswith("verifier of ") and label.partition("/")[0] == JUDGED


# ---- what makes a row beside its settings: the facts behind its scores ----------------------------------------------


def model_facts(run: Run) -> dict[str, str]:
    """The state of each agent's model: the hub's commit, or the local folder's fingerprint when it was registered."""
    members = {agent.name: agent.model for agent in run.group.agents.all()} if run.group else {}
    facts = {}
    for agent in run.spec["agents"]:
        model, state = members.get(agent["name"]), agent.get("revision") or ""
        if not state and model is not None and model.location == agent["model"]:
            state = model.revision if model.kind == LanguageModel.Kind.HUB else model.facts.get("folder_fingerprint")
        facts[f"model of {agent['name']}"] = str(state or NOT_RECORDED)
    return facts


def score_facts(result: RunResult) -> dict[str, str]:
    """Verifier and questions of each benchmark, which are the same for every agent."""
    facts = {}
    for scores in result.final.values():
        for benchmark, score in scores.items():
            facts[f"verifier of {benchmark}"] = score.verifier or NOT_RECORDED
            facts[f"questions of {benchmark}"] = score.questions or NOT_RECORDED
    return dict(sorted(facts.items()))


def facts_of_rows(rows: Iterable[BoardRow]) -> dict[str, list[str]]:
    """Name of a fact -> its values over all rows with results."""
    return values_by_name(item for row in rows if row.results for item in row.facts.items())


def values_by_name(items: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Name -> its different values; both sorted."""
    values: dict[str, set[str]] = {}
    for name, value in items:
        values.setdefault(name, set()).add(value)
    return {name: sorted(values[name]) for name in sorted(values)}


def key_of(*parts: Any) -> str:
    """The parts as one text, which is the same for equal parts, whatever the order of their keys."""
    return json.dumps(parts, sort_keys=True, default=str)


def differing_settings(row: BoardRow, others: Sequence[BoardRow]) -> dict[str, Any]:
    """Settings that differ in any of the others, but for agents' models and names, which the row's lines show.

    One that does not act in another row is no difference to that row.
    """
    return {
        path: value
        for path, value in row.settings.items()
        if not (path.startswith("agents.") and path.endswith((".name", ".model")))
        and any(o.settings.get(path) != value and (path in o.settings or path not in o.all_settings) for o in others)
    }
