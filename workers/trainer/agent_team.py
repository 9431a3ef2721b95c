"""The agents of a run, called together: steps 1, 2 and 4 of Algorithm 1. What goes wrong in them is logged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from workers.agents.interface import AgentInterface, Answer, Placement
from workers.agents.messages import GeneratedRollouts, RolloutsMissing, UpdateReport
from workers.agents.updates import MAX_FAILURES_IN_A_ROW
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.rollouts.engine import LOGP_DIFFERENCE_LIMIT
from workers.trainer.progress import LogFunction, ProgressReporter
from workers.trainer.step import StepPlan, learning_rate


class Diverged(RuntimeError):
    """Three updates in a row had no finite loss or gradient, and there was no snapshot to roll back to."""


class AgentTeam:
    """Asks all agents of a run, wherever their placement puts them. Steps are 0, 1, ..."""

    placement: Placement
    agents: Sequence[AgentInterface] = ()

    def __init__(self, spec: RunSpec, progress: ProgressReporter, log: LogFunction) -> None:
        self.spec, self.progress, self.log = spec, progress, log

    def call(self, phase: str, calls: Sequence[Callable[[], Answer]]) -> list[Callable[[], Answer]]:
        """Call agents. Each returned call waits for one answer. Before both, a check for a stop. Error: Stopped."""
        self.progress.stop.check()

        def wait(answer: Callable[[], Answer]) -> Answer:
            with self.progress.phase(phase):
                return answer()

        return [partial(wait, answer) for answer in self.placement.begin(calls)]

    def sample_ahead(self, step: int, questions: Sequence[Question]) -> None:
        """Begin a later step's rollouts in all agents' samplers."""
        for wait in self.call("generate", [partial(agent.sample_ahead, step, questions) for agent in self.agents]):
            wait()

    def generate(self, step: int, questions: Sequence[Question]) -> list[GeneratedRollouts]:
        """The rollouts of all agents. Error: RolloutsMissing, unless the run may continue without an agent's."""
        sharing = self.spec.sharing
        may_continue = sharing is not None and sharing.on_missing_source == "degrade" and len(self.agents) > 1
        generated: list[GeneratedRollouts] = []
        calls = [partial(agent.generate, step, questions) for agent in self.agents]
        for agent, answer in zip(self.agents, self.call("generate", calls), strict=True):
            try:
                rollouts = answer()
            except RolloutsMissing as error:
                if not may_continue:
                    raise
                text = f"step {step + 1} continues without the rollouts of {agent.name}: {error}"
                self.log("warning", text, "no rollouts")
                rollouts = GeneratedRollouts([[] for _ in questions], (0.0, 0.0), is_missing=True)
            self._log_notes(agent.name, rollouts.notes)
            generated.append(rollouts)
        if all(rollouts.is_missing for rollouts in generated):
            raise RolloutsMissing(f"no agent delivered rollouts in step {step + 1}: see the warnings above")
        return generated

    def generate_extra(self, step: int, questions: Sequence[Question]) -> list[GeneratedRollouts] | None:
        """Rollouts of further prompts of a step; None if an agent could not deliver them."""
        generated, is_complete = [], True
        calls = [partial(agent.generate_extra, step, questions) for agent in self.agents]
        for agent, answer in zip(self.agents, self.call("generate", calls), strict=True):
            try:
                generated.append(answer())
                self._log_notes(agent.name, generated[-1].notes)
            except RolloutsMissing as error:
                is_complete = False
                text = f"step {step + 1} samples no further prompts: {agent.name}: {error}"
                self.log("warning", text, "no rollouts")
        if not is_complete:
            self.progress.count(generated)
        return generated if is_complete else None

    def keep_prompts(self, places: Sequence[int]) -> None:
        """Forget a step's other prompts."""
        for wait in self.call("generate", [partial(agent.keep_prompts, places) for agent in self.agents]):
            wait()

    def measure_alignments(self, plan: StepPlan) -> list[dict[int, float | None]]:
        """The alignment of each learner and source, also of quarantined sources."""
        calls = [
            partial(agent.measure_alignment, [row for rows in (*mini_batches, quarantined) for row in rows])
            for agent, mini_batches, quarantined in zip(self.agents, plan.mini_batches, plan.quarantined, strict=True)
        ]
        return [answer() for answer in self.call("update", calls)]

    def update(self, step: int, plan: StepPlan, *, measures_alignment: bool) -> list[UpdateReport]:
        """The updates of all learners. Error: Diverged."""
        calls = [
            partial(
                agent.update,
                plan.mini_batches[learner],
                learning_rate(self.spec, learner, step),
                measures_alignment=measures_alignment,
            )
            for learner, agent in enumerate(self.agents)
        ]
        reports: list[UpdateReport] = []
        for agent, answer in zip(self.agents, self.call("update", calls), strict=True):
            reports.append(answer())
            self._log_report(step, agent.name, reports[-1])
        return reports

    def _log_notes(self, name: str, notes: Sequence[str]) -> None:
        for note in notes:
            self.log("warning", f"{name}: {note}", "out of memory")

    def _log_report(self, step: int, name: str, report: UpdateReport) -> None:
        """Log what went wrong in the updates of a step. Error: Diverged."""
        self._log_notes(name, report.notes)
        if (difference := report.engine_logp_difference or 0.0) > LOGP_DIFFERENCE_LIMIT:
            text = f"after step {step + 1} its rollout engine's log-probabilities are {difference:.2f} nats away"
            self.log("warning", f"{name}: {text} from the trainer's", "engine")
        if report.skipped_updates:
            skipped = f"skipped {report.skipped_updates} updates of step {step + 1}"
            self.log("warning", f"{name}: {skipped}: loss or gradient not finite", "not finite")
        if report.rolled_back:
            back = "back at the last weights whose gradient was finite"
            self.log("warning", f"{name}: {MAX_FAILURES_IN_A_ROW} updates in a row without one: {back}", "not finite")
        if report.failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            failures = f"{report.failures_in_a_row} updates in a row without a finite loss or gradient"
            raise Diverged(f"diverged at step {step + 1}: {name} had {failures}")
