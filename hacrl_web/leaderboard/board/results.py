"""Results of completed runs: each agent's scores on each benchmark before and after training, and their cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from uuid import UUID

from django.db.models import Max

from hacrl_web.insight.evaluations.evaluations import EvaluationPoint
from hacrl_web.runs.models import Run, State, TelemetryEvent
from hacrl_web.runs.telemetry.ended_run_cache import cached_by_run
from workers.contract.spec.reward_function import NETWORK_KEY

ACCURACY = "accuracy"  # the metric of evaluation events; all estimates below are of it
MEAN_OF_SAMPLES = "avg@k"  # avg at each benchmark's own k; every other estimate is named with its number
START, FINAL = "start", "final"


def estimate_of(score: EvaluationPoint, metric: str) -> float | None:
    return score.estimates.get(f"avg@{score.num_samples}" if metric == MEAN_OF_SAMPLES else metric)


Scores = Mapping[str, Mapping[str, EvaluationPoint]]  # by agent, then by benchmark
_ByStep = dict[int, dict[str, dict[str, EvaluationPoint]]]


@dataclass(frozen=True)
class RunResult:
    """One completed run in numbers.  start: before training; empty for a run that continued from a checkpoint."""

    run: Run
    start: Scores
    final: Scores
    versions: Mapping[str, str]  # of its last attempt; empty if not recorded

    @property
    def agents(self) -> list[str]:
        return self.run.agent_names

    @property
    def benchmarks(self) -> list[str]:
        """Benchmarks of the last step, the run's own held-out questions first."""
        names = dict.fromkeys(name for scores in self.final.values() for name in scores)
        return sorted(names, key=lambda name: name != self.run.spec["data"]["benchmark"])

    def score(
        self, agents: Sequence[str], benchmarks: Sequence[str], metric: str = MEAN_OF_SAMPLES, when: str = FINAL
    ) -> float | None:
        """Mean over these agents and benchmarks; None if any of them was not measured."""
        scores = self.start if when == START else self.final
        values = []
        for agent in agents:
            for benchmark in benchmarks:
                one = scores.get(agent, {}).get(benchmark)
                value = None if one is None else estimate_of(one, metric)
                if value is None:
                    return None
                values.append(value)
        return fmean(values) if values else None

    @property
    def rollouts(self) -> int:
        return int(self.run.progress.get("rollouts_generated") or 0)

    @property
    def tokens(self) -> int:
        return int(self.run.progress.get("tokens_generated") or 0)

    @property
    def training_seconds(self) -> float:
        """Seconds of the trainer's clock, with evaluations, on however many devices."""
        return float(self.run.progress.get("elapsed_s") or 0.0)


def run_results(runs: Iterable[Run]) -> dict[UUID, RunResult]:
    """The results, by id, of completed runs whose last evaluation scores every agent on their own benchmark."""
    completed = [run for run in runs if run.state == State.COMPLETED]
    readings = cached_by_run("result", completed, _read)
    results = {}
    for run in completed:
        pk, (by_step, versions) = run.pk, readings[run.pk]
        if not by_step:
            continue
        result = RunResult(run, by_step.get(0, {}), by_step[max(by_step)], versions)
        if result.score(run.agent_names, [run.spec["data"]["benchmark"]]) is not None:
            results[pk] = result
    return results


def _read(runs: Iterable[Run]) -> dict[UUID, tuple[_ByStep, dict[str, str]]]:
    """Scores by step, and versions, of every run; in three queries."""
    by_id = {run.pk: run for run in runs}
    points, versions = _evaluations(by_id), _versions(list(by_id))
    return {pk: (points.get(pk, {}), versions.get(pk, {})) for pk in by_id}


def _evaluations(runs: Mapping[UUID, Run]) -> dict[UUID, _ByStep]:
    """run -> step -> agent -> benchmark, of step 0 and each run's last evaluated step, in the latest attempt.

    An evaluation in which no answer could be scored leaves its step without a score.
    """
    events = TelemetryEvent.objects.filter(run__in=list(runs), type="evaluation")
    last_steps = events.order_by().values_list("run_id").annotate(Max("step"))
    ends = {run: {0, last} for run, last in last_steps}
    steps = {step for both in ends.values() for step in both}
    by_run: dict[UUID, _ByStep] = {}
    rows = events.filter(step__in=steps).order_by("attempt", "seq").values_list("run_id", "agent", "step", "payload")
    for run, agent, step, payload in rows:
        if step in ends[run] and payload.get("metric") == ACCURACY:
            scores = by_run.setdefault(run, {}).setdefault(step, {}).setdefault(agent, {})
            benchmark = str(payload.get("benchmark") or runs[run].spec["data"]["benchmark"])
            scores.pop(benchmark, None)  # of an earlier attempt
            if payload.get("value") is not None:
                scores[benchmark] = EvaluationPoint.of(step, payload)
    return by_run


def _versions(ids: Sequence[UUID]) -> dict[UUID, dict[str, str]]:
    """Versions of packages by run, as its last attempt recorded them."""
    events = TelemetryEvent.objects.filter(run__in=ids, type="started").order_by("attempt", "seq")
    versions: dict[UUID, dict[str, str]] = {}
    for run, payload in events.values_list("run_id", "payload"):
        used = versions.get(run, {}).get(NETWORK_KEY)  # also if only an earlier attempt could use the network
        versions[run] = ({NETWORK_KEY: used} if used else {}) | dict(payload.get("versions") or {})
    return versions
