"""What options add to a step of Algorithm 1, each at its place. An option that is off has no hook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from workers.agents.messages import GeneratedRollouts, UpdateReport
from workers.algorithms.base.capability import CapabilityTracker
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.trainer.agent_team import AgentTeam
from workers.trainer.evaluation import EvaluationRunner
from workers.trainer.prompt_sampling import DynamicSampling, PromptSampler, SampledStep
from workers.trainer.scoring import Scores
from workers.trainer.step import StepPlan, plan_step
from workers.trainer.trust import AuditTally, RewardAudit, Trust, TrustChange


@dataclass
class OpenStep:
    """A step (0, 1, ...) while it is made. trained: its kept prompts; alignments: by learner, if they are measured."""

    number: int
    batch: Sequence[Question]
    prompts: PromptSampler
    sampled: SampledStep = field(init=False)
    trained: SampledStep = field(init=False)
    ratio: Tensor = field(init=False)  # (n, n)
    plan: StepPlan = field(init=False)
    reports: Sequence[UpdateReport] = ()
    alignments: Sequence[dict[int, float | None]] = ()
    measures_alignment: bool = False
    audit_tallies: Sequence[AuditTally] = ()

    def make_plan(self, spec: RunSpec, trust: Trust) -> None:
        """The learners' mini-batches, of the sources that are trusted now."""
        self.plan = plan_step(spec, self.number, self.trained.generated, self.trained.scores, self.ratio, trust)


class StepHook:
    """Called at its places of every step; here: nothing is done."""

    def before_scores(self, step: OpenStep) -> None: ...
    def after_scores(self, step: OpenStep) -> None: ...
    def before_plan(self, step: OpenStep) -> None: ...
    def after_plan(self, step: OpenStep) -> None: ...
    def after_update(self, step: OpenStep) -> None: ...
    def close(self) -> None: ...


class SamplingAhead(StepHook):
    """Begins the next step's rollouts with the weights that this step starts from."""

    def __init__(self, spec: RunSpec, team: AgentTeam) -> None:
        self.spec, self.team = spec, team

    def before_scores(self, step: OpenStep) -> None:
        if step.number + 1 < self.spec.training.steps:
            self.team.sample_ahead(step.number + 1, step.prompts.batch(step.number + 1))


class ExtraPrompts(StepHook):
    """Replaces prompts without a signal by further ones."""

    def __init__(self, spec: RunSpec, team: AgentTeam, evaluations: EvaluationRunner, trust: Trust) -> None:
        self.spec, self.team, self.evaluations, self.trust = spec, team, evaluations, trust

    def after_scores(self, step: OpenStep) -> None:
        def sample(questions: Sequence[Question]) -> tuple[list[GeneratedRollouts], Scores] | None:
            generated = self.team.generate_extra(step.number, questions)
            if generated is None:
                return None
            with self.team.progress.phase("verify"):
                scorer, per_prompt = self.evaluations.scorer, self.spec.num_generations
                return generated, scorer.score_step(questions, generated, per_prompt, is_extra=True)

        extra = step.prompts.substitutes(step.number, step.batch)
        step.sampled = DynamicSampling(self.spec, self.trust, sample).fill(step.sampled, extra)
        step.trained = step.sampled.trained()
        if step.sampled.num_extra:
            self.team.keep_prompts(step.sampled.trained_places)


class TrustHook(StepHook):
    """Evidence on sources, and what follows from it."""

    def __init__(self, team: AgentTeam, trust: Trust, tracker: CapabilityTracker) -> None:
        self.team, self.trust, self.tracker = team, trust, tracker

    def note(self, changes: Sequence[TrustChange]) -> bool:
        """Log which sources were excluded or readmitted; whether there were any."""
        for change in changes:
            self.team.log(change.level, change.message)
            if change.readmitted is not None:  # its capability comes from incorrect rewards
                self.tracker.forget(change.readmitted)
        return bool(changes)


class Audit(TrustHook):
    """Compares a share of the rewards with second opinions."""

    def __init__(self, team: AgentTeam, trust: Trust, tracker: CapabilityTracker, audit: RewardAudit) -> None:
        super().__init__(team, trust, tracker)
        self.audit = audit

    def after_scores(self, step: OpenStep) -> None:
        with self.team.progress.phase("verify"):
            trained = step.trained
            step.audit_tallies = self.audit.check(step.number, trained.questions, trained.generated, trained.scores)
            for finding in self.audit.findings:
                self.team.log("warning", f"audit: {finding}")

    def before_plan(self, step: OpenStep) -> None:
        self.note(self.trust.note_audit(step.audit_tallies))

    def close(self) -> None:
        self.audit.close()


class Quarantine(TrustHook):
    """Measures gradient alignments. A source that is excluded by a step's evidence is not used in this step."""

    def after_plan(self, step: OpenStep) -> None:
        if not self.trust.is_due(step.number + 1):
            return
        step.alignments = self.team.measure_alignments(step.plan)
        changes = [change for each in enumerate(step.alignments) for change in self.trust.note_alignment(*each)]
        if self.note(changes):
            step.make_plan(self.team.spec, self.trust)

    def after_update(self, step: OpenStep) -> None:
        for report, alignment in zip(step.reports, step.alignments, strict=False):  # none if it was not due
            report.alignment = alignment


class RecordedAlignment(StepHook):
    """Has the agents measure gradient alignments within their updates, where no quarantine has."""

    def __init__(self, interval: int) -> None:
        self.interval = interval

    def after_plan(self, step: OpenStep) -> None:
        step.measures_alignment = (step.number + 1) % self.interval == 0 and not step.alignments


def hooks_of(
    team: AgentTeam, evaluations: EvaluationRunner, trust: Trust, tracker: CapabilityTracker
) -> list[StepHook]:
    """The hooks of a run, in the order of their calls. Errors: FunctionFileError, JudgeFileError."""
    spec, hooks = team.spec, list[StepHook]()
    if spec.rollout.samples_ahead:
        hooks.append(SamplingAhead(spec, team))
    if spec.rollout.max_extra_prompts:
        hooks.append(ExtraPrompts(spec, team, evaluations, trust))
    if trust.audits:
        hooks.append(Audit(team, trust, tracker, RewardAudit(spec, evaluations.judges)))
    if trust.watches_alignment:
        hooks.append(Quarantine(team, trust, tracker))
    if spec.telemetry.alignment_interval and spec.algorithm.shares_rollouts:
        hooks.append(RecordedAlignment(spec.telemetry.alignment_interval))
    return hooks
