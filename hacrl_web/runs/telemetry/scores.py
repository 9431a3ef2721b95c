"""Held-out accuracies of runs, from their evaluation events: by agent and step, and their mean over the agents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from uuid import UUID

from django.db.models import Count

from hacrl_web.runs.models import Run, TelemetryEvent
from hacrl_web.runs.telemetry.ended_run_cache import cached_by_run
from workers.contract import verifier_kinds

Scores = dict[int, dict[str, float]]  # step -> agent -> held-out accuracy
CURVE_EVENTS = 500  # a run with more evaluations has no curve in a list


def score_word(runs: Iterable[Run]) -> str:
    """What the held-out scores of these runs are called together: accuracy, mean reward, or score for both kinds."""
    return verifier_kinds.score_word(run.spec.get("data", {}).get("verifier", "math") for run in runs)


def score_benchmark(runs: Iterable[Run]) -> str:
    """The benchmark on which the listed scores of all these runs are, each run's own; empty if theirs differ."""
    names = {str(run.spec.get("data", {}).get("benchmark", "")) for run in runs}
    return names.pop() if len(names) == 1 else ""


def accuracies(run: Run) -> Scores:
    """The accuracies on each run's own benchmark, from the latest attempt of each step."""
    return _accuracies([run])[run.pk]


def _accuracies(runs: Sequence[Run]) -> dict[UUID, Scores]:
    by_run: dict[UUID, Scores] = {run.pk: {} for run in runs}
    further = {run.pk: run.further_benchmarks for run in runs}
    rows = TelemetryEvent.objects.filter(run__in=list(by_run), type="evaluation").order_by("run", "attempt", "seq")
    for run, step, agent, payload in rows.values_list("run", "step", "agent", "payload").iterator(chunk_size=2000):
        value = payload.get("value")
        if payload.get("metric") == "accuracy" and value is not None and payload.get("benchmark") not in further[run]:
            by_run[run].setdefault(step or 0, {})[agent] = value
    return by_run


def means(scores: Mapping[int, Mapping[str, float]], num_agents: int) -> list[tuple[int, float]]:
    """(step, mean over agents) of the steps at which every agent was evaluated, in order."""
    return [(step, fmean(scores[step].values())) for step in sorted(scores) if len(scores[step]) == num_agents]


def score_of(run: Run) -> float | None:
    """The last of `means`: the column `score` of the run."""
    curve = means(accuracies(run), len(run.agent_names))
    return curve[-1][1] if curve else None


def curves(runs: Collection[Run]) -> dict[UUID, list[tuple[int, float]]]:
    """`means` by run, in two queries at most; empty for a run with more than CURVE_EVENTS evaluations."""
    return cached_by_run("curve", runs, _curves)


def _curves(runs: Collection[Run]) -> dict[UUID, list[tuple[int, float]]]:
    events = TelemetryEvent.objects.filter(run__in=[run.pk for run in runs], type="evaluation")
    counts = dict(events.order_by().values_list("run").annotate(Count("pk")))
    some = [run for run in runs if 0 < counts.get(run.pk, 0) <= CURVE_EVENTS]
    by_run = _accuracies(some)
    return {run.pk: means(by_run.get(run.pk, {}), len(run.agent_names)) for run in runs}
