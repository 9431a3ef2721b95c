"""The result strip of the Overview tab: held-out accuracy of each agent from start to now, the difference to GSPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hacrl_web.accounts.models import User
from hacrl_web.insight.collaboration.collaboration import peers_share
from hacrl_web.insight.collaboration.step_summary import recorded_steps, summary_of
from hacrl_web.insight.overview.overview import same_but_seed
from hacrl_web.runs.models import Run
from hacrl_web.runs.run.results import learned_nothing, polyline_points
from hacrl_web.runs.telemetry.scores import accuracies
from hacrl_web.web.statistics import MeanInterval, mean_interval
from workers.contract.spec.algorithm import BASELINE

Scores = Mapping[int, Mapping[str, float]]  # step -> agent -> held-out accuracy


@dataclass(frozen=True)
class AgentResult:
    """points: (step, held-out accuracy).  peers: their share of what moved the agent in `peers_step`, as text."""

    name: str
    position: int
    points: tuple[tuple[int, float], ...]
    peers: str
    peers_step: int | None

    @property
    def start(self) -> float | None:
        return self.points[0][1] if self.points else None

    @property
    def now(self) -> float | None:
        return self.points[-1][1] if self.points else None

    @property
    def step(self) -> int | None:
        return self.points[-1][0] if self.points else None

    @property
    def difference(self) -> float | None:
        """The last evaluation minus the first; None before the second."""
        return self.points[-1][1] - self.points[0][1] if len(self.points) > 1 else None

    @property
    def sparkline(self) -> str:
        return polyline_points(self.points)


@dataclass(frozen=True)
class Results:
    """gain: over GSPO at `step`, of the mean over agents, by seed; None without a GSPO run to compare with.

    warning: which agents have learned nothing, in words; empty in a replay.
    """

    agents: list[AgentResult]
    step: int | None
    gain: MeanInterval | None
    warning: str


def results(run: Run, at: int | None = None) -> Results:
    """The results of a run so far, or by the end of step `at`; below 0: before its first evaluation."""
    scores = scores_with_parent(run)
    steps = recorded_steps(run)
    if at is not None:
        scores = {step: of_agents for step, of_agents in scores.items() if step <= at}
        steps = {step: attempt for step, attempt in steps.items() if step <= at}
    newest = max(steps, default=None)
    summary = None if newest is None else summary_of(run, steps, newest)
    agents = [
        AgentResult(
            name,
            position,
            tuple((step, scores[step][name]) for step in sorted(scores) if name in scores[step]),
            "" if summary is None else peers_share(summary, name),
            newest,
        )
        for position, name in enumerate(run.agent_names)
    ]
    whole = [step for step in scores if len(scores[step]) == len(agents)]
    step = max(whole, default=None)
    gain = None if step is None else gain_over_gspo(run, scores, step)
    return Results(agents, step, gain, learned_nothing(run) if at is None else "")


def scores_with_parent(run: Run) -> dict[int, dict[str, float]]:
    """Held-out accuracies of a run; one that continues from a checkpoint begins with its parent's up to that step."""
    own = accuracies(run)
    parent = run.cloned_from
    if not run.start_step or parent is None:
        return own
    return {step: scores for step, scores in accuracies(parent).items() if step <= run.start_step} | own


def gain_over_gspo(run: Run, scores: Scores, step: int) -> MeanInterval | None:
    """The mean over agents of the accuracy at a step, minus that of the GSPO run of the same sweep and seed.

    Over the seeds of this run's settings for which both runs are evaluated at the step. None for GSPO itself, and
    without such a pair. scores: the run's own.
    """
    by_seed = baselines_by_seed(run)
    differences = []
    for own in same_but_seed(run) if by_seed else []:
        if own.seed not in by_seed:
            continue
        ours = scores if own.pk == run.pk else accuracies(own)
        theirs = accuracies(by_seed[own.seed])
        if len(ours.get(step, ())) == len(theirs.get(step, ())) == len(run.agent_names):
            differences.append(fmean(ours[step].values()) - fmean(theirs[step].values()))
    return mean_interval(differences, scale=1.0)


def baselines_by_seed(run: Run) -> dict[int, Run]:
    """The newest GSPO run of each seed in the run's sweep, with its other settings; empty for GSPO itself."""
    if run.sweep_id is None or run.algorithm == BASELINE:
        return {}
    baselines = Run.objects.filter(sweep_id=run.sweep_id, algorithm=BASELINE).order_by("created_at", "pk")
    settings = _apart_from_algorithm(run)
    return {one.seed: one for one in baselines if _apart_from_algorithm(one) == settings}


def _apart_from_algorithm(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.spec.items() if key not in ("name", "seed", "algorithm")}


def suggested_overlays(run: Run, user: User) -> list[dict[str, str]]:
    """Visible runs whose curves may be drawn behind the run's: its parent and the baseline. {id, name, relation}."""
    baseline = baselines_by_seed(run).get(run.seed)
    related = {
        "continued from" if run.start_step else "cloned from": run.cloned_from_id,
        "retry of": run.retry_of_id,
        "baseline": baseline.pk if baseline else None,
    }
    names = dict(Run.objects.visible_to(user).filter(pk__in=filter(None, related.values())).values_list("pk", "name"))
    return [{"id": str(pk), "name": names[pk], "relation": relation} for relation, pk in related.items() if pk in names]
