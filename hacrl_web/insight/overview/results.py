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

MAX_BASELINES = 200  # the newest, which are compared with the run
LEAST_DIFFERENCE = 0.0005  # of an accuracy: what three decimals show
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

    mean, baseline: of those seeds' accuracies with this run's algorithm and with GSPO; None without a gain.
    has_baseline: the run's GSPO run exists, evaluated or not.  warning: which agents have learned nothing, in words;
    empty in a replay.
    """

    agents: list[AgentResult]
    step: int | None
    gain: MeanInterval | None
    mean: float | None
    baseline: float | None
    has_baseline: bool
    warning: str

    @property
    def verdict(self) -> str:
        """Whether sharing helped, as far as the compared seeds tell; empty without a gain."""
        if self.gain is None:
            return ""
        if abs(self.gain.mean) < LEAST_DIFFERENCE:
            return "Sharing changed nothing"
        if self.gain.count > 1 and not self.gain.is_clear:
            return "Not clear whether sharing helped"
        return "Sharing helped" if self.gain.mean > 0 else "Sharing hurt"


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
    by_seed = baselines_by_seed(run)
    pairs = [] if step is None else _beside_gspo(run, by_seed, scores, step)
    return Results(
        agents,
        step,
        gain=mean_interval([own - gspo for own, gspo in pairs], scale=1.0),
        mean=fmean(own for own, _ in pairs) if pairs else None,
        baseline=fmean(gspo for _, gspo in pairs) if pairs else None,
        has_baseline=run.seed in by_seed,
        warning=learned_nothing(run) if at is None else "",
    )


def scores_with_parent(run: Run) -> dict[int, dict[str, float]]:
    """Held-out accuracies of a run; one that continues from a checkpoint begins with its parent's up to that step."""
    own = accuracies(run)
    parent = run.cloned_from
    if not run.start_step or parent is None:
        return own
    return {step: scores for step, scores in accuracies(parent).items() if step <= run.start_step} | own


def _beside_gspo(run: Run, by_seed: Mapping[int, Run], scores: Scores, step: int) -> list[tuple[float, float]]:
    """Mean over agents of the accuracy at a step, of this run's settings and of their GSPO run: a pair for each seed.

    Over the seeds of which both runs are evaluated at the step.  scores: the run's own.
    """
    pairs = []
    for own in same_but_seed(run) if by_seed else []:
        if own.seed not in by_seed:
            continue
        ours = scores if own.pk == run.pk else accuracies(own)
        theirs = accuracies(by_seed[own.seed])
        if len(ours.get(step, ())) == len(theirs.get(step, ())) == len(run.agent_names):
            pairs.append((fmean(ours[step].values()), fmean(theirs[step].values())))
    return pairs


def baselines_by_seed(run: Run) -> dict[int, Run]:
    """The newest GSPO run of each seed with the run's other settings; empty for GSPO itself.

    Of the run's sweep; of a run outside of sweeps, any of its project, as a clone with another algorithm is.
    """
    if run.algorithm == BASELINE or (run.sweep_id is None and run.project_id is None):
        return {}
    if run.sweep_id is not None:
        near = Run.objects.filter(sweep_id=run.sweep_id)
    else:
        near = Run.objects.filter(project_id=run.project_id, group_id=run.group_id, benchmark_id=run.benchmark_id)
        near = near.filter(seed=run.seed)  # it is compared alone
    baselines = near.filter(algorithm=BASELINE).order_by("-created_at", "-pk")[:MAX_BASELINES]
    settings = _apart_from_algorithm(run)
    return {one.seed: one for one in reversed(baselines) if _apart_from_algorithm(one) == settings}


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
