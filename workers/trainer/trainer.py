"""Algorithm 1 of arXiv 2603.02604, for any number of agents: the loop of a run, and one step of it.

`Trainer.train` and `Trainer.one_step` are the algorithm; the methods after them call the agents, which are wherever
their placement puts them, and load, save and log. All results leave as events.
"""

from __future__ import annotations

import math
import sys
import time
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
from workers.algorithms.base.capability import CapabilityTracker
from workers.contract import events
from workers.contract.checkpoint_manifest import DamagedCheckpoint
from workers.contract.memory.machine import ResolvedSettings, with_settings
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.questions.dataset import Question, Split, split_sets
from workers.rollouts.engine import LOGP_DIFFERENCE_LIMIT
from workers.trainer.checkpoints import CheckpointsFail, CheckpointWriter, newest_checkpoint
from workers.trainer.evaluation import EvaluationRunner, EvaluationSet
from workers.trainer.preflight import (
    check_algorithm,
    check_memory,
    empty_models,
    evaluated_questions_that_fit,
    questions_that_fit,
    resolved_here,
)
from workers.trainer.progress import ProgressReporter
from workers.trainer.prompt_sampling import PromptSampler
from workers.trainer.resampling import DynamicSampling, SampledStep
from workers.trainer.rewards import AnyVerifier, Judges, network_labels, open_set_verifiers, verifier_label
from workers.trainer.scoring import Scores
from workers.trainer.step import StepPlan, learning_rate, plan_step
from workers.trainer.step_events import StepRecord, step_events
from workers.trainer.stop_signals import Paused, StopFlag
from workers.trainer.trust import RewardAudit, Trust, TrustChange
from workers.verifiers.judges.judge_verifier import JudgeVerifier

# A checkpoint on the way out must fit into the grace of 30 s between TERM and KILL.
CHEAP_CHECKPOINT_BYTES = 2_000_000_000
STOP_PATIENCE_S = 10.0  # from the request to stop until the agents are idle


class Diverged(RuntimeError):
    """Three updates in a row had no finite loss or gradient, and there was no snapshot to roll back to."""


class Trainer:
    """One run: its agents, its counters, and the spool that it writes to."""

    def __init__(self, spec: RunSpec, run_dir: Path, spool: SpoolWriter, verifier: AnyVerifier, stop: StopFlag) -> None:
        self.spec, self.run_dir, self.spool, self.stop = spec, run_dir, spool, stop
        self.progress = ProgressReporter(spec, spool, stop)
        self.phase = self.progress.phase
        self.judges = Judges()
        if isinstance(verifier, JudgeVerifier):
            self.judges.add(spec.data.judge, verifier)
        self.set_verifiers = open_set_verifiers(spec, self.judges)  # of further training sets
        self.evaluations = EvaluationRunner(
            spec, verifier, self.progress, self.log, self.pause, self.judges, self.set_verifiers
        )
        self.scorer = self.evaluations.scorer
        self.checkpoints = CheckpointWriter(run_dir, spec.checkpoint, self.log)
        self.tracker = CapabilityTracker(len(spec.agents), spec.algorithm.capability_options)
        self.trust = Trust([agent.name for agent in spec.agents], spec.sharing)
        self.audit = RewardAudit(spec, self.judges)
        self.prompts = PromptSampler(spec, [[] for _ in spec.training_data])  # with questions once they are read
        self.prompts_state: dict[str, Any] = {}  # of the checkpoint, until the questions are read
        self.placement: Placement
        self.agents: Sequence[AgentInterface] = ()
        self.settled: ResolvedSettings = {}  # what the spec leaves to the machine
        self.step = 0  # completed steps
        self.is_in_step = False
        self.is_mid_step = False  # between two steps' states: nothing may be saved

    def train(self) -> None:
        """The whole run. Errors: Stopped, Paused, Diverged, and others."""
        spec = self.spec
        splits = (
            [] if spec.is_evaluation_only else split_sets(*spec.training_data, evaluated=spec.evaluation.benchmarks)
        )
        self.load()
        self.prompts = PromptSampler(spec, self.prepare_questions(splits))
        if self.prompts_state and self.prompts.has_state:
            self.prompts.load_state_dict(self.prompts_state)
        # Also on resuming: a stop may have come before or during this step's evaluation, which repeats itself exactly.
        if self.step == 0 or self.is_due(spec.evaluation.eval_interval):
            self.evaluate()
        if self.step:
            # This attempt resumed from the checkpoint of this step.
            self.checkpoints.note_best(self.step, self.evaluations.score)
            self.progress.record_resumed(self.step)
        bar = tqdm(total=spec.training.steps, initial=self.step, unit="step", disable=not sys.stderr.isatty())
        with bar, closing(self.audit):
            while self.step < spec.training.steps:
                if self.stop.is_pause_requested:
                    self.pause()
                self.progress.begin_step()
                batch = self.prompts.batch(self.step)
                record = self.one_step(batch, self.next_questions(), self.prompts.substitutes(self.step, batch))
                with self.phase("telemetry", checks_stop=False):  # a step's events come before its checkpoint
                    interval = spec.telemetry.rollout_interval
                    self.spool.emit(*step_events(record, with_rollouts=bool(interval and self.step % interval == 0)))
                if self.is_due(spec.evaluation.eval_interval):
                    self.evaluate()
                if self.step == spec.training.steps:
                    while self.checkpoints.step != self.step:  # the last checkpoint is tried again at once
                        self.save()
                elif self.is_due(spec.save_interval):
                    self.save()
                self.progress.record_step(self.step)
                bar.update()
                bar.set_postfix_str(" ".join(f"{name} {value:.2f}" for name, value in _mean_rewards(record)))

    def one_step(
        self, batch: Sequence[Question], following: Sequence[Question] = (), extra: Sequence[Question] = ()
    ) -> StepRecord:
        """One round of Algorithm 1, with its numbers.

        following: what is sampled ahead, beside this step.  extra: what may replace prompts without a signal.
        """
        spec = self.spec
        self.is_in_step = True
        if following:  # the next step's rollouts are of the weights that this step starts from
            self.sample_ahead(following)
        # 1, 2. The same prompts go to all agents; each samples G rollouts and scores them with its own weights.
        sampled = self.sample(batch, extra)
        step = sampled.trained()
        questions, generated, scores = step.questions, step.generated, step.scores
        with self.phase("verify"):
            tallies = self.audit.check(self.step, questions, generated, scores) if self.trust.audits else []
            for finding in self.audit.findings:
                self.log("warning", f"audit: {finding}")
        # 3. Barrier: capabilities, ratios and every learner's advantages, of policies frozen at the start of the step.
        self.stop.check()
        self.is_mid_step = True
        self.log_trust(self.trust.note_audit(tallies))
        # Of all sampled prompts: those with a signal alone would say less of how strong an agent is.
        self.tracker.update(sampled.scores.rewards, sampled.scores.valid)
        ratio = self.tracker.ratio()  # (n, n)  ratio[a, b] = omega(a, b)
        plan = plan_step(spec, self.step, generated, scores, ratio, self.trust)
        is_watched = self.trust.is_due(self.step + 1)
        alignments = self.measure_alignments(plan) if is_watched else []
        # A source that is excluded by this step's evidence is not used in this step.
        if self.log_trust([change for each in enumerate(alignments) for change in self.trust.note_alignment(*each)]):
            plan = plan_step(spec, self.step, generated, scores, ratio, self.trust)
        # 4. Each learner takes its [self block, cross block] in mini-batches, one optimizer step each.
        interval = spec.telemetry.alignment_interval
        is_recorded = bool(interval and (self.step + 1) % interval == 0 and spec.algorithm.shares_rollouts)
        reports = self.update(plan, measures_alignment=is_recorded and not is_watched)
        for report, alignment in zip(reports, alignments, strict=False):  # none if it is not watched
            report.alignment = alignment
        self.prompts.end_step(self.step)
        # 5. The new weights are the next step's policies.
        self.step += 1
        self.is_in_step = self.is_mid_step = False
        self.progress.count(sampled.generated)
        return StepRecord(
            step=self.step,
            names=[agent.name for agent in self.agents],
            algorithm=spec.algorithm,
            questions=questions,
            generated=generated,
            scores=scores,
            tracker=self.tracker,
            plan=plan,
            reports=reports,
            trust=self.trust if self.trust.is_on else None,
            audit_tallies=tallies,
            importance_cap=spec.rollout.importance_cap,
            sampled=sampled if spec.rollout.max_extra_prompts else None,
        )

    # The agents

    def call(self, phase: str, calls: Sequence[Callable[[], Answer]]) -> list[Callable[[], Answer]]:
        """Call agents. Each returned call waits for one answer. Before both, a check for a stop. Error: Stopped."""
        self.stop.check()

        def wait(answer: Callable[[], Answer]) -> Answer:
            with self.phase(phase):
                return answer()

        return [partial(wait, answer) for answer in self.placement.begin(calls)]

    def next_questions(self) -> list[Question]:
        """The next step's prompts if it may be sampled ahead; none in the last step."""
        is_ahead = self.spec.rollout.samples_ahead and self.step + 1 < self.spec.training.steps
        return self.prompts.batch(self.step + 1) if is_ahead else []

    def sample_ahead(self, questions: Sequence[Question]) -> None:
        """Begin the next step's rollouts in all agents' samplers."""
        for wait in self.call("generate", [partial(a.sample_ahead, self.step + 1, questions) for a in self.agents]):
            wait()

    def sample(self, batch: Sequence[Question], extra: Sequence[Question]) -> SampledStep:
        """The rollouts of a step with their rewards, and which prompts are trained. Errors: as `generate`."""
        generated = self.generate(batch)
        with self.phase("verify"):
            scores = self.scorer.score_step(batch, generated, self.spec.num_generations)
        drawn = SampledStep(batch, generated, scores, range(len(batch)))
        if not self.spec.rollout.max_extra_prompts:
            return drawn
        sampled = DynamicSampling(self.spec, self.trust, self.sample_extra).fill(drawn, extra)
        if sampled.num_extra:
            for wait in self.call(
                "generate", [partial(agent.keep_prompts, sampled.trained_places) for agent in self.agents]
            ):
                wait()
        return sampled

    def sample_extra(self, questions: Sequence[Question]) -> tuple[list[GeneratedRollouts], Scores] | None:
        """Rollouts and rewards of further prompts of a step; None if an agent could not deliver them."""
        generated, problem = [], ""
        calls = [partial(agent.generate_extra, self.step, questions) for agent in self.agents]
        for agent, answer in zip(self.agents, self.call("generate", calls), strict=True):
            try:
                generated.append(answer())
                self.log_notes(agent.name, generated[-1])
            except RolloutsMissing as error:
                problem = f"step {self.step + 1} samples no further prompts: {agent.name}: {error}"
                self.log("warning", problem, "no rollouts")
        if problem:
            self.progress.count(generated)
            return None
        with self.phase("verify"):
            return generated, self.scorer.score_step(questions, generated, self.spec.num_generations, is_extra=True)

    def generate(self, questions: Sequence[Question]) -> list[GeneratedRollouts]:
        """The rollouts of all agents. Error: RolloutsMissing, unless the run may continue without an agent's."""
        sharing = self.spec.sharing
        may_continue = sharing is not None and sharing.on_missing_source == "degrade" and len(self.agents) > 1
        generated: list[GeneratedRollouts] = []
        calls = [partial(agent.generate, self.step, questions) for agent in self.agents]
        for agent, answer in zip(self.agents, self.call("generate", calls), strict=True):
            try:
                rollouts = answer()
            except RolloutsMissing as error:
                if not may_continue:
                    raise
                text = f"step {self.step + 1} continues without the rollouts of {agent.name}: {error}"
                self.log("warning", text, "no rollouts")
                rollouts = GeneratedRollouts([[] for _ in questions], (0.0, 0.0), is_missing=True)
            self.log_notes(agent.name, rollouts)
            generated.append(rollouts)
        if all(rollouts.is_missing for rollouts in generated):
            raise RolloutsMissing(f"no agent delivered rollouts in step {self.step + 1}: see the warnings above")
        return generated

    def measure_alignments(self, plan: StepPlan) -> list[dict[int, float | None]]:
        """By learner and source, also of quarantined sources."""
        calls = [
            partial(agent.measure_alignment, [row for rows in (*mini_batches, quarantined) for row in rows])
            for agent, mini_batches, quarantined in zip(self.agents, plan.mini_batches, plan.quarantined, strict=True)
        ]
        return [answer() for answer in self.call("update", calls)]

    def update(self, plan: StepPlan, *, measures_alignment: bool) -> list[UpdateReport]:
        """The updates of all learners. Error: Diverged."""
        calls = [
            partial(
                agent.update,
                plan.mini_batches[learner],
                learning_rate(self.spec, learner, self.step),
                measures_alignment=measures_alignment,
            )
            for learner, agent in enumerate(self.agents)
        ]
        reports: list[UpdateReport] = []
        for agent, answer in zip(self.agents, self.call("update", calls), strict=True):
            reports.append(answer())
            self.log_report(agent.name, reports[-1])
        return reports

    def evaluate(self) -> None:
        self.evaluations.evaluate(self.step, self.placement)

    # Loading and saving

    def load(self) -> None:
        """Load the agents of the spec, or the whole run from its newest checkpoint.

        In a first attempt that is the checkpoint of another run. Error: DamagedCheckpoint, if it is damaged.
        """
        resumable, problems = newest_checkpoint(self.run_dir)
        if problems and resumable is None and self.spool.attempt == 1:
            raise DamagedCheckpoint(f"the checkpoint to resume from: {problems[0]}")
        names = [agent.name for agent in self.spec.agents]
        folders = None if resumable is None else [resumable.folders[name] for name in names]
        if resumable is None:
            check_algorithm(self.spec)
            models = empty_models(self.spec)
            check_memory(self.spec, models)
            self.settled = resolved_here(self.spec, models)
        else:  # the same batches, so the same sums
            self.settled = resumable.trainer.get("settled") or resumable.trainer.get("batches", {})
        self.placement = place(with_settings(self.spec, self.settled), self.run_dir, folders)
        self.agents = self.placement.agents
        self.progress.used_bytes = self.placement.used_bytes
        if resumable is not None:
            stems = resumable.state_stems
            for wait in self.placement.begin([partial(agent.load_state, stems[agent.name]) for agent in self.agents]):
                wait()
            self.load_state_dict(resumable.step, resumable.trainer)
        verifier = verifier_label(self.spec.data)
        labels = network_labels(self.spec)
        self.progress.record_started(self.step, names, self.placement, verifier, self.settled, labels)
        for label in labels:
            self.log("warning", f"{label} may use the network: its rewards cannot be repeated exactly")
        for label in self.evaluations.terms.labels:
            self.log("info", f"reward {label}")
        if self.spool.damage:
            self.log("warning", self.spool.damage, "damaged file")
        for problem in problems:
            self.log("warning", f"checkpoint not used: {problem}", "damaged file")
        for agent in self.agents:
            self.log("info", introduction(agent))

    def prepare_questions(self, splits: Sequence[Split]) -> list[list[Question]]:
        """The questions of each training set; sets those of evaluations. splits: none if nothing is trained."""
        spec, num_samples = self.spec, self.spec.evaluation.num_samples
        sets: list[list[Question]] = [[] for _ in spec.training_data]
        if not splits:
            held_out = evaluated_questions_that_fit(spec, self.agents, spec.data, self.log)
        else:
            for data, split in zip(spec.training_data, splits, strict=True):
                if split.num_repeated or split.num_overlapping:
                    repeated = f"{split.num_repeated} repeated questions"
                    counts = f"{repeated}, {split.num_overlapping} training questions held out"
                    self.log("info", f"{data.benchmark}: left out {counts}")
            sets, held_out = questions_that_fit(spec, self.agents, splits, self.log)
            self.log_sets(sets)
        if self.step == 0:
            self.scorer.check_answers([question for questions in (*sets, held_out) for question in questions])
        evaluated = [EvaluationSet(spec.data, held_out, num_samples)]
        for data in spec.evaluation.benchmarks:
            questions = evaluated_questions_that_fit(spec, self.agents, data, self.log)
            evaluated.append(EvaluationSet(data, questions, data.num_samples or num_samples))
        self.spool.emit(*(event for each in evaluated for event in each.question_events()))
        self.evaluations.sets = evaluated
        return sets

    def log_sets(self, sets: Sequence[Sequence[Question]]) -> None:
        """With several training sets, what each of them is."""
        for data, share, questions in zip(self.spec.training_data, self.spec.training_shares, sets, strict=True):
            if len(sets) > 1:
                what = f"{len(questions)} questions, {share:.1%} of the prompts, verifier {verifier_label(data)}"
                self.log("info", f"training set {data.benchmark}: {what}")

    def save(self) -> None:
        """Write a checkpoint. Error: CheckpointsFail, after three in a row that could not be written."""
        with self.phase("checkpoint", checks_stop=False):
            saved = self.checkpoints.save(self.step, self.evaluations.score, self.placement, self.state_dict())
        if saved is not None:
            path = saved.path.relative_to(self.run_dir).as_posix()
            self.spool.emit(events.Checkpoint(step=self.step, path=path, size_bytes=saved.size_bytes))

    def pause(self) -> NoReturn:
        """Save what is not saved and end. Error: Paused, always."""
        self.save_if_between_steps()
        reason = events.PAUSE_REQUESTED
        if self.step and self.checkpoints.step != self.step:
            reason += f"; no checkpoint of step {self.step} could be written, so it resumes from an earlier one"
        raise Paused(reason)

    def save_if_cheap(self) -> None:
        """On a stop: save only what is quick to write, and wait for no agent that works for long."""
        if not self.can_save or sum(agent.describe()["num_bytes"] for agent in self.agents) >= CHEAP_CHECKPOINT_BYTES:
            return
        if self.is_idle_within(STOP_PATIENCE_S - self.stop.seconds_since_request):
            self.save_if_between_steps()
        else:
            self.log("info", f"stopped without a checkpoint of step {self.step}: an agent was still at work")

    def is_idle_within(self, seconds: float) -> bool:
        """Whether no agent works, nor samples what a checkpoint stores, at the latest after `seconds`."""
        deadline = time.monotonic() + seconds
        return self.placement.has_ended_within(max(0.0, seconds)) and all(
            agent.has_sampled_within(max(0.0, deadline - time.monotonic())) for agent in self.agents
        )

    def save_if_between_steps(self) -> None:
        """On a stop or pause: save all agents or none. A full disk must not turn it into a failure."""
        if self.can_save:
            with suppress(CheckpointsFail):
                self.save()

    @property
    def can_save(self) -> bool:
        """Whether there is something to save that has no checkpoint."""
        return bool(self.agents) and self.step not in (0, self.checkpoints.step) and not self.is_mid_step

    def close(self) -> None:
        """Release the agents' processes and devices, and those of reward functions and judges; log what these cost."""
        self.evaluations.terms.close()
        for verifier in {id(one): one for one in self.set_verifiers.values()}.values():  # sets may share one
            if not isinstance(verifier, JudgeVerifier):
                verifier.close()
        self.judges.close()
        if self.agents:
            self.placement.close()
        for judge in self.judges:
            if judge.spent:
                self.log("info", f"{judge.file.label}: {judge.spent:.4g} spent in this attempt, evaluations included")

    def state_dict(self) -> dict[str, Any]:
        """The trainer's own state, beside the agents'."""
        trust = {"trust": self.trust.state_dict()} if self.trust.is_on else {}
        prompts = {"prompts": self.prompts.state_dict()} if self.prompts.has_state else {}
        settled = {"settled": self.settled, **prompts}
        return {"tracker": self.tracker.state_dict(), **self.progress.state_dict(), **settled, **trust}

    def load_state_dict(self, step: int, state: dict[str, Any]) -> None:
        self.step = step
        self.checkpoints.resume(step, state)
        self.tracker.load_state_dict(state["tracker"])
        self.progress.load_state_dict(state)
        self.prompts_state = state.get("prompts", {})
        if "trust" in state:
            self.trust.load_state_dict(state["trust"])

    def is_due(self, interval: int) -> bool:
        """Whether something that happens every `interval` steps, and after the last, happens after this one."""
        return self.step == self.spec.training.steps or (interval > 0 and self.step % interval == 0)

    # The log

    def log(self, level: events.Level, message: str, incident: events.Incident | None = None) -> None:
        # An incident during a step belongs to that step; `self.step` counts the completed ones.
        step = self.step + (incident is not None and self.is_in_step)
        self.spool.emit(events.Log(level=level, message=message, step=step, incident=incident))

    def log_trust(self, changes: Sequence[TrustChange]) -> bool:
        """Log which sources were excluded or readmitted; whether there were any."""
        for change in changes:
            self.log(change.level, change.message)
            if change.readmitted is not None:  # its capability comes from incorrect rewards
                self.tracker.forget(change.readmitted)
        return bool(changes)

    def log_notes(self, name: str, rollouts: GeneratedRollouts) -> None:
        for note in rollouts.notes:
            self.log("warning", f"{name}: {note}", "out of memory")

    def log_report(self, name: str, report: UpdateReport) -> None:
        """Log what went wrong in the updates of a step. Error: Diverged."""
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


def _mean_rewards(record: StepRecord) -> Iterator[tuple[str, float]]:
    for name, rewards, valid in zip(record.names, record.scores.rewards, record.scores.valid, strict=True):
        yield name, rewards[valid].mean().item() if valid.any() else math.nan
