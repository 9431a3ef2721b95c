"""Algorithm 1 of arXiv 2603.02604, top to bottom, for any number of agents: the heart of `python -m workers`.

Agents are asked in text and numbers (placement.py); everything learned here leaves as events (telemetry.py).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from workers.agents.interface import AgentInterface, Answer, Placement
from workers.agents.messages import GeneratedRollouts, RolloutsMissing, UpdateReport
from workers.agents.placement import introduction, place
from workers.agents.updates import MAX_FAILURES_IN_A_ROW
from workers.algorithms import hacpo
from workers.contract import events
from workers.contract.checkpoint_manifest import DamagedCheckpoint
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.contract.verifier_kinds import kind_label
from workers.questions.dataset import Question, Split, split_questions
from workers.rollouts.engine import LOGP_DIFFERENCE_LIMIT
from workers.trainer.checkpoints import CheckpointsFail, Saving, newest_checkpoint
from workers.trainer.evaluation import EvaluationRunner, EvaluationSet
from workers.trainer.memory_check import check_memory
from workers.trainer.progress import ProgressReporter
from workers.trainer.prompt_lengths import evaluated_questions_that_fit, questions_that_fit
from workers.trainer.step import StepPlan, batch_of_step, learning_rate, plan_step
from workers.trainer.step_events import StepRecord, step_events
from workers.trainer.stop_signals import Paused, StopFlag
from workers.trainer.trust import Audit, Trust, TrustChange
from workers.verifiers.service import Verifier

# A checkpoint on the way out must fit into the grace between TERM and KILL.
CHEAP_CHECKPOINT_BYTES = 2_000_000_000


class Diverged(RuntimeError):
    """Three updates in a row had no finite loss or gradient, and there was nothing left to roll back to."""


class Trainer:
    """One run: its agents, its counters, and the spool it writes to."""

    def __init__(self, spec: RunSpec, run_dir: Path, spool: SpoolWriter, verifier: Verifier, stop: StopFlag) -> None:
        self.spec, self.run_dir, self.spool, self.stop = spec, run_dir, spool, stop
        self.progress = ProgressReporter(spec, spool, stop)
        self.phase = self.progress.phase
        self.examiner = EvaluationRunner(self, verifier)
        self.scorer = self.examiner.scorer
        self.saving = Saving(run_dir, spec.checkpoint, self.log)
        algorithm = spec.algorithm
        self.tracker = hacpo.CapabilityTracker(
            len(spec.agents),
            algorithm.capability_window,
            ratio_min=algorithm.ratio_min,
            ratio_max=algorithm.ratio_max,
            warmup_steps=algorithm.ratio_warmup_steps,
        )
        self.trust = Trust([agent.name for agent in spec.agents], algorithm)
        self.audit = Audit(spec)
        self.placement: Placement
        self.agents: Sequence[AgentInterface] = ()
        self.step = 0  # completed steps
        self.is_in_step = False
        self.is_mid_step = False  # its state is that of no step: nothing may be saved

    def train(self) -> None:
        """The whole run. Errors: Stopped, Diverged, or whatever went wrong."""
        spec = self.spec
        split = None if spec.is_evaluation_only else split_questions(spec.data)
        self.load()
        train = self.prepare_questions(split)
        # Also on resuming: a stop may have come before or amid this step's evaluation. It repeats itself exactly.
        if self.step == 0 or self.is_due(spec.evaluation.eval_interval):
            self.evaluate()
        if self.step:
            # The checkpoint of this step is there: this attempt came from it.
            self.saving.note_best(self.step, self.examiner.score)
            self.progress.record_resumed(self.step)
        bar = tqdm(total=spec.training.steps, initial=self.step, unit="step", disable=not sys.stderr.isatty())
        with bar, closing(self.audit):
            while self.step < spec.training.steps:
                if self.stop.is_pause_asked:
                    self.pause()
                self.progress.begin_step()
                record = self.one_step(batch_of_step(spec, self.step, train))
                with self.phase("telemetry", obeys_stop=False):  # a step that may be saved has been told
                    interval = spec.telemetry.rollout_interval
                    self.spool.emit(*step_events(record, with_rollouts=bool(interval and self.step % interval == 0)))
                if self.is_due(spec.evaluation.eval_interval):
                    self.evaluate()
                if self.step == spec.training.steps:
                    self.save_last()
                elif self.is_due(spec.checkpoint.save_steps):
                    self.save()
                self.progress.record_step(self.step)
                bar.update()
                bar.set_postfix_str(" ".join(f"{name} {value:.2f}" for name, value in _mean_rewards(record)))

    def prepare_questions(self, split: Split | None) -> list[Question]:
        """What is trained on; what evaluations ask goes to the examiner. split: None where nothing is trained on."""
        spec, count = self.spec, self.spec.evaluation.num_samples
        train: list[Question] = []
        if split is None:
            held_out = evaluated_questions_that_fit(spec, self.agents, spec.data, self.log)
        else:
            if split.num_repeated or split.num_overlapping:
                repeated, overlapping = split.num_repeated, split.num_overlapping
                left_out = f"{repeated} repeated questions, {overlapping} training questions held out"
                self.log("info", f"{spec.data.benchmark}: left out {left_out}")
            train, held_out = questions_that_fit(spec, self.agents, split, self.log)
        if self.step == 0:
            self.scorer.check_answers([*train, *held_out])
        exams = [EvaluationSet(spec.data, held_out, count)]
        for data in spec.evaluation.benchmarks:
            evaluated = evaluated_questions_that_fit(spec, self.agents, data, self.log)
            exams.append(EvaluationSet(data, evaluated, data.num_samples or count))
        self.spool.emit(*(event for exam in exams for event in exam.question_events()))
        self.examiner.exams = exams
        return train

    def one_step(self, questions: Sequence[Question]) -> StepRecord:
        """Algorithm 1, one round; the numbers are its lines in design order."""
        spec = self.spec
        self.is_in_step = True
        # 1, 2. The same prompts go to all agents; each samples G rollouts and scores them with its own weights.
        generated = self.generate(questions)
        with self.phase("verify"):
            scores = self.scorer.score_step(questions, generated, spec.num_generations)
            audited = self.audit.check(self.step, questions, generated, scores) if self.trust.audits else []
        # 3. Barrier: capabilities, ratios and every learner's advantages, of policies frozen at the start of the step.
        self.stop.check()
        self.is_mid_step = True
        self.tell(self.trust.note_audit(audited))
        self.tracker.update(scores.rewards, scores.valid)
        ratio = self.tracker.ratio()  # (n, n)  ratio[a, b] = omega(a, b)
        step_plan = plan_step(spec, self.step, generated, scores, ratio, self.trust)
        is_watched = self.trust.is_due(self.step + 1)
        alignments = self.measure_alignments(step_plan) if is_watched else []
        # Whom the evidence speaks against teaches nothing from this very step on.
        if self.tell([change for each in enumerate(alignments) for change in self.trust.note_alignment(*each)]):
            step_plan = plan_step(spec, self.step, generated, scores, ratio, self.trust)
        # 4. Each learner takes its [self block, cross block] in mini-batches, one optimizer step each.
        interval = spec.telemetry.alignment_interval
        is_told = bool(interval and (self.step + 1) % interval == 0 and spec.algorithm.shares_rollouts)
        reports = self.update(step_plan, measures_alignment=is_told and not is_watched)
        for report, alignment in zip(reports, alignments, strict=False):  # measured already where it is watched
            report.alignment = alignment
        # 5. The new weights are the next step's policies.
        self.step += 1
        self.is_in_step = self.is_mid_step = False
        self.progress.count(generated)
        return StepRecord(
            step=self.step,
            names=[agent.name for agent in self.agents],
            questions=questions,
            generated=generated,
            rewards=scores.rewards,
            valid=scores.valid,
            timeouts=scores.timeouts,
            tracker=self.tracker,
            objective=step_plan.objective,
            plans=step_plan.plans,
            reports=reports,
            quarantined=step_plan.quarantined,
            trusted_sources=step_plan.trusted_sources,
            trust=self.trust if self.trust.is_on else None,
            audited=audited,
            sharing=spec.algorithm.shares_rollouts,
            alpha=spec.algorithm.alpha if spec.algorithm.name == "hacpo" else None,
        )

    def ask(self, phase: str, calls: Sequence[Callable[[], Answer]]) -> list[Callable[[], Answer]]:
        """Ask all agents. Each returned call waits for one of them; a stop is obeyed before it does."""

        def wait(answer: Callable[[], Answer]) -> Answer:
            with self.phase(phase):
                return answer()

        return [partial(wait, answer) for answer in self.placement.begin(calls)]

    def generate(self, questions: Sequence[Question]) -> list[GeneratedRollouts]:
        """The rollouts of all agents, none of one that cannot deliver if the run may go on with those of others.

        Error: RolloutsMissing.
        """
        algorithm = self.spec.algorithm
        may_go_on = algorithm.on_missing_source == "degrade" and algorithm.shares_rollouts and len(self.agents) > 1
        generated: list[GeneratedRollouts] = []
        calls = [partial(agent.generate, self.step, questions) for agent in self.agents]
        for agent, answer in zip(self.agents, self.ask("generate", calls), strict=True):
            try:
                rollouts = answer()
            except RolloutsMissing as error:
                if not may_go_on:
                    raise
                text = f"step {self.step + 1} goes on without the rollouts of {agent.name}: {error}"
                self.log("warning", text, "no rollouts")
                rollouts = GeneratedRollouts([[] for _ in questions], (0.0, 0.0), is_missing=True)
            for note in rollouts.notes:
                self.log("warning", f"{agent.name}: {note}", "out of memory")
            generated.append(rollouts)
        if all(rollouts.is_missing for rollouts in generated):
            raise RolloutsMissing(f"no agent delivered rollouts in step {self.step + 1}: see the warnings above")
        return generated

    def update(self, step_plan: StepPlan, *, measures_alignment: bool) -> list[UpdateReport]:
        """The updates of all learners. Error: Diverged."""
        rates = [learning_rate(self.spec, learner, self.step) for learner in range(len(self.agents))]
        calls = [
            partial(agent.update, plan, rate, measures_alignment=measures_alignment)
            for agent, plan, rate in zip(self.agents, step_plan.plans, rates, strict=True)
        ]
        reports: list[UpdateReport] = []
        for agent, answer in zip(self.agents, self.ask("update", calls), strict=True):
            reports.append(answer())
            self.watch_for_divergence(agent.name, reports[-1])
        return reports

    def measure_alignments(self, step_plan: StepPlan) -> list[dict[int, float | None]]:
        """By learner and source, also of those in quarantine."""
        calls = [
            partial(agent.measure_alignment, [row for rows in (*plan, watched) for row in rows])
            for agent, plan, watched in zip(self.agents, step_plan.plans, step_plan.quarantined, strict=True)
        ]
        return [answer() for answer in self.ask("update", calls)]

    def tell(self, changes: Sequence[TrustChange]) -> bool:
        """Say who is no longer, or again, trusted; whether there was anything to say."""
        for change in changes:
            self.log(change.level, change.message)
            if change.readmitted is not None:  # what it earned while its rewards were wrong says nothing
                self.tracker.forget(change.readmitted)
        return bool(changes)

    def watch_for_divergence(self, name: str, report: UpdateReport) -> None:
        """Tell what the updates of a step have to say. Error: Diverged."""
        for note in report.notes:
            self.log("warning", f"{name}: {note}", "out of memory")
        if (difference := report.engine_logp_difference or 0.0) > LOGP_DIFFERENCE_LIMIT:
            text = f"after step {self.step + 1} its rollout engine's log-probabilities are {difference:.2f} nats away"
            self.log("warning", f"{name}: {text} from the trainer's", "engine")
        if report.skipped_updates:
            skipped = f"skipped {report.skipped_updates} updates of step {self.step + 1}"
            self.log("warning", f"{name}: {skipped}: loss or gradient not finite", "not finite")
        if report.rolled_back:
            back = "back at the last weights whose gradient was finite"
            self.log("warning", f"{name}: {MAX_FAILURES_IN_A_ROW} updates in a row without one: {back}", "not finite")
        if report.failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            failures = f"{report.failures_in_a_row} updates in a row without a finite loss or gradient"
            raise Diverged(f"diverged at step {self.step + 1}: {name} had {failures}")

    def load(self) -> None:
        """Agents from the spec, or all of the run from its newest checkpoint.

        A first attempt finds one in a run that goes on from another's. Error: DamagedCheckpoint, where it is damaged.
        """
        resumable, problems = newest_checkpoint(self.run_dir)
        if problems and resumable is None and self.spool.attempt == 1:
            raise DamagedCheckpoint(f"the checkpoint to go on from: {problems[0]}")
        names = [agent.name for agent in self.spec.agents]
        folders = None if resumable is None else [resumable.folders[name] for name in names]
        if resumable is None:
            check_memory(self.spec)
        self.placement = place(self.spec, self.run_dir, folders)
        self.agents = self.placement.agents
        self.progress.used_bytes = self.placement.used_bytes
        if resumable is not None:
            stems = resumable.state_stems
            calls = [partial(agent.load_state, stems[agent.name]) for agent in self.agents]
            for loaded in self.placement.begin(calls):
                loaded()
            self.load_state_dict(resumable.step, resumable.trainer)
        self.progress.record_started(self.step, names, self.placement.device_name, kind_label(self.spec.data.verifier))
        if self.spool.damage:
            self.log("warning", self.spool.damage, "damaged file")
        for problem in problems:
            self.log("warning", f"checkpoint not used: {problem}", "damaged file")
        for agent in self.agents:
            self.log("info", introduction(agent))

    def evaluate(self) -> None:
        self.examiner.evaluate(self.step, self.placement)

    def save(self) -> None:
        """A checkpoint, where one can be written. Error: CheckpointsFail, after three in a row that could not."""
        with self.phase("checkpoint", obeys_stop=False):
            saved = self.saving.save(self.step, self.examiner.score, self.placement, self.state_dict())
        if saved is not None:
            path = saved.path.relative_to(self.run_dir).as_posix()
            self.spool.emit(events.Checkpoint(step=self.step, path=path, size_bytes=saved.size_bytes))

    def save_last(self) -> None:
        """The checkpoint that all of the run was for: tried again at once. Error: CheckpointsFail."""
        while self.saving.step != self.step:
            self.save()

    def pause(self) -> NoReturn:
        """Save what is not saved and end. Error: Paused, always."""
        self.save_if_between_steps()
        reason = events.PAUSE_ASKED
        if self.step and self.saving.step != self.step:
            reason += f"; no checkpoint of step {self.step} could be written, so it goes on from an earlier one"
        raise Paused(reason)

    def save_if_cheap(self) -> None:
        """On the way out with a grace: only what is quick to write."""
        size = sum(agent.describe()["num_bytes"] for agent in self.agents)
        if size < CHEAP_CHECKPOINT_BYTES:
            self.save_if_between_steps()

    def save_if_between_steps(self) -> None:
        """On the way out: all agents or none. A full disk must not turn a stop or a pause into a failure."""
        if self.agents and self.step not in (0, self.saving.step) and not self.is_mid_step:
            with suppress(CheckpointsFail):
                self.save()

    def close(self) -> None:
        """Give back what the agents hold."""
        if self.agents:
            self.placement.close()

    def state_dict(self) -> dict[str, Any]:
        """The trainer's own state, beside the agents'."""
        trust = {"trust": self.trust.state_dict()} if self.trust.is_on else {}
        return {"tracker": self.tracker.state_dict(), **self.progress.state_dict(), **trust}

    def load_state_dict(self, step: int, state: dict[str, Any]) -> None:
        self.step = step
        self.saving.resume(step, state)
        self.tracker.load_state_dict(state["tracker"])
        self.progress.load_state_dict(state)
        if "trust" in state:
            self.trust.load_state_dict(state["trust"])

    def is_due(self, interval: int) -> bool:
        """Whether what happens every `interval` steps, and after the last, happens after this one."""
        return self.step == self.spec.training.steps or (interval > 0 and self.step % interval == 0)

    def log(self, level: events.Level, message: str, incident: events.Incident | None = None) -> None:
        # Trouble amid a step belongs to that step; `self.step` counts those that are done.
        step = self.step + (incident is not None and self.is_in_step)
        self.spool.emit(events.Log(level=level, message=message, step=step, incident=incident))


def _mean_rewards(record: StepRecord) -> Iterator[tuple[str, float]]:
    for name, rewards, valid in zip(record.names, record.rewards, record.valid, strict=True):
        yield name, rewards[valid].mean().item() if valid.any() else math.nan
