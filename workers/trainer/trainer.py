"""Algorithm 1 of arXiv 2603.02604, for any number of agents: the loop of a run, and one step of it.

`Trainer.train` and `Trainer.one_step` are the algorithm; the methods after them load, save and log. Options act at five
places of a step (step_hooks.py), agents are called by agent_team.py, and all results leave as events.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NoReturn

from tqdm import tqdm

from workers.agents.interface import AgentInterface
from workers.agents.placement import introduction, place
from workers.algorithms.base.capability import CapabilityTracker
from workers.contract import events
from workers.contract.checkpoint_manifest import DamagedCheckpoint, needs_float32
from workers.contract.memory.machine import ResolvedSettings, with_settings
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.questions.dataset import Question, Split, split_sets
from workers.questions.generated import FreshQuestions
from workers.trainer.agent_team import AgentTeam
from workers.trainer.checkpoints import CheckpointsFail, CheckpointWriter, newest_checkpoint
from workers.trainer.evaluation import EvaluationRunner, EvaluationSet
from workers.trainer.preflight import (
    check_algorithm,
    check_memory,
    empty_models,
    engine_reason,
    evaluated_questions_that_fit,
    passes_of,
    questions_that_fit,
    resolved_here,
)
from workers.trainer.progress import ProgressReporter
from workers.trainer.prompt_sampling import PromptSampler, SampledStep
from workers.trainer.rewards import (
    AnyVerifier,
    Judges,
    network_labels,
    open_set_verifiers,
    sandbox_label,
    verifier_label,
)
from workers.trainer.step_events import StepRecord, step_events
from workers.trainer.step_hooks import OpenStep, hooks_of
from workers.trainer.stop_signals import Paused, StopFlag
from workers.trainer.trust import Trust
from workers.verifiers.judges.judge_verifier import JudgeVerifier

# A checkpoint on the way out must fit into the grace of 30 s between TERM and KILL.
CHEAP_CHECKPOINT_BYTES = 2_000_000_000
STOP_PATIENCE_S = 10.0  # from the request to stop until the agents are idle


class Trainer:
    """One run: its agents, its counters, and the spool that it writes to."""

    def __init__(self, spec: RunSpec, run_dir: Path, spool: SpoolWriter, verifier: AnyVerifier, stop: StopFlag) -> None:
        self.spec = spec
        self.step = 0  # completed steps
        self.moment: Literal["between steps", "sampling", "learning"] = "between steps"
        self.progress = ProgressReporter(spec, spool, stop)
        judges = Judges()
        if isinstance(verifier, JudgeVerifier):
            judges.add(spec.data.judge, verifier)
        of_sets = open_set_verifiers(spec, judges)  # of further training sets
        self.evaluations = EvaluationRunner(spec, verifier, self.progress, self.log, self.pause, judges, of_sets)
        self.checkpoints = CheckpointWriter(run_dir, spec.checkpoint, self.log)
        self.tracker = CapabilityTracker(len(spec.agents), spec.algorithm.capability_options)
        self.trust = Trust([agent.name for agent in spec.agents], spec.sharing)
        self.team = AgentTeam(spec, self.progress, self.log)
        self.hooks = hooks_of(self.team, self.evaluations, self.trust, self.tracker)
        self.prompts = PromptSampler(
            spec, [FreshQuestions(data, []) for data in spec.training_data]
        )  # until they are read
        self.resolved: ResolvedSettings = {}  # what the spec leaves to the machine

    @property
    def agents(self) -> Sequence[AgentInterface]:
        """Empty until they are loaded."""
        return self.team.agents

    def train(self) -> None:
        """The whole run. Errors: Stopped, Paused, Diverged, and others."""
        spec = self.spec
        splits = (
            [] if spec.is_evaluation_only else split_sets(*spec.training_data, evaluated=spec.evaluation.benchmarks)
        )
        state = self.load()
        sets = self.prepare_questions(splits)
        never_trained = chain(*(one.held_out for one in splits), *(one.questions for one in self.evaluations.sets))
        self.prompts = PromptSampler(spec, passes_of(spec, self.agents, sets, never_trained, self.log))
        if state.get("prompts") and self.prompts.has_state:
            self.prompts.load_state_dict(state["prompts"])
        # Also on resuming: a stop may have come before or during this step's evaluation, which repeats itself exactly.
        if self.step == 0 or self.is_due(spec.evaluation.eval_interval):
            self.evaluate()
        if self.step:
            # This attempt resumed from the checkpoint of this step.
            self.checkpoints.note_best(self.step, self.evaluations.score)
            self.progress.record_resumed(self.step)
        bar = tqdm(total=spec.training.steps, initial=self.step, unit="step", disable=not sys.stderr.isatty())
        with bar, ExitStack() as stack:
            for hook in self.hooks:
                stack.callback(hook.close)
            while self.step < spec.training.steps:
                if self.progress.stop.is_pause_requested:
                    self.pause()
                self.progress.begin_step()
                record = self.one_step(self.prompts.batch(self.step))
                with self.progress.phase("telemetry", checks_stop=False):  # a step's events come before its checkpoint
                    interval = spec.telemetry.rollout_interval
                    self.progress.spool.emit(
                        *step_events(record, with_rollouts=bool(interval and self.step % interval == 0))
                    )
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

    def one_step(self, batch: Sequence[Question]) -> StepRecord:
        """One round of Algorithm 1, with its numbers."""
        step = OpenStep(self.step, batch, self.prompts)
        self.moment = "sampling"
        for hook in self.hooks:
            hook.before_scores(step)
        # 1, 2. The same prompts go to all agents; each samples G rollouts and scores them with its own weights.
        generated = self.team.generate(step.number, batch)
        with self.progress.phase("verify"):
            scores = self.evaluations.scorer.score_step(batch, generated, self.spec.num_generations)
        step.sampled = step.trained = SampledStep(batch, generated, scores, range(len(batch)))
        for hook in self.hooks:
            hook.after_scores(step)
        # 3. Barrier: capabilities, ratios and every learner's advantages, of policies frozen at the start of the step.
        self.progress.stop.check()
        self.moment = "learning"
        for hook in self.hooks:
            hook.before_plan(step)
        # Of all sampled prompts: those with a signal alone would say less of how strong an agent is.
        self.tracker.update(step.sampled.scores.rewards, step.sampled.scores.valid)
        step.ratio = self.tracker.ratio()  # (n, n)  ratio[a, b] = omega(a, b)
        step.make_plan(self.spec, self.trust)
        for hook in self.hooks:
            hook.after_plan(step)
        # 4. Each learner takes its [self block, cross block] in mini-batches, one optimizer step each.
        step.reports = self.team.update(step.number, step.plan, measures_alignment=step.measures_alignment)
        for hook in self.hooks:
            hook.after_update(step)
        # 5. The new weights are the next step's policies.
        self.prompts.end_step(step.number)
        self.step += 1
        self.moment = "between steps"
        self.progress.count(step.sampled.generated)
        self.progress.count_weights(self.step, [agent.name for agent in self.agents], step.reports, self.log)
        return self.record_of(step)

    def record_of(self, step: OpenStep) -> StepRecord:
        """What the events of a step are made of."""
        return StepRecord(
            step=step.number + 1,
            names=[agent.name for agent in self.agents],
            algorithm=self.spec.algorithm,
            questions=step.trained.questions,
            generated=step.trained.generated,
            scores=step.trained.scores,
            tracker=self.tracker,
            plan=step.plan,
            reports=step.reports,
            trust=self.trust if self.trust.is_on else None,
            audit_tallies=step.audit_tallies,
            importance_cap=self.spec.rollout.importance_cap,
            sampled=step.sampled if self.spec.rollout.max_extra_prompts else None,
        )

    def evaluate(self) -> None:
        self.evaluations.evaluate(self.step, self.team.placement)

    # Loading and saving

    def load(self) -> dict[str, Any]:
        """Load the agents of the spec, or the whole run from its newest checkpoint; returns the trainer's state there.

        In a first attempt that is the checkpoint of another run. Error: DamagedCheckpoint, if it is damaged.
        """
        resumable, problems = newest_checkpoint(self.checkpoints.run_dir)
        if problems and resumable is None and self.progress.spool.attempt == 1:
            raise DamagedCheckpoint(f"the checkpoint to resume from: {problems[0]}")
        names = [agent.name for agent in self.spec.agents]
        reason = ""
        folders = None if resumable is None else [resumable.folders[name] for name in names]
        if resumable is None:
            check_algorithm(self.spec)
            models = empty_models(self.spec)
            check_memory(self.spec, models)
            self.resolved, reason = resolved_here(self.spec, models), engine_reason(self.spec, models)
        else:  # the same batches, so the same sums
            self.resolved = resumable.trainer.get("settled") or resumable.trainer.get("batches", {})
        placement = place(with_settings(self.spec, self.resolved), self.checkpoints.run_dir, folders)
        self.team.placement, self.team.agents = placement, placement.agents
        self.progress.used_bytes = placement.used_bytes
        if resumable is not None:
            stems = resumable.state_stems
            for wait in placement.begin([partial(agent.load_state, stems[agent.name]) for agent in self.agents]):
                wait()
            self.load_state_dict(resumable.step, resumable.trainer)
        verifier = verifier_label(self.spec.data)
        labels = network_labels(self.spec)
        fence = sandbox_label(self.spec)
        self.progress.record_started(self.step, names, placement, verifier, self.resolved, labels, fence)
        if reason:
            self.log("info", reason)
        for label in labels:
            self.log("warning", f"{label} may use the network: its rewards cannot be repeated exactly")
        for label in self.evaluations.terms.labels:
            self.log("info", f"reward {label}")
        if self.progress.spool.damage:
            self.log("warning", self.progress.spool.damage, "damaged file")
        for problem in problems:
            self.log("warning", f"checkpoint not used: {problem}", "damaged file")
        for agent, of_spec in zip(self.agents, self.spec.agents, strict=True):
            self.log("info", introduction(agent))
            if agent.describe()["dtype"] == "bfloat16" and needs_float32(of_spec.model):
                what = "its folder's weights are float32 sums with a LoRA update, and are rounded to bfloat16 here"
                self.log("warning", f"{agent.name}: {what}, so it is another model than the one trained")
        return {} if resumable is None else resumable.trainer

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
            self.evaluations.scorer.check_answers(
                [question for questions in (*sets, held_out) for question in questions]
            )
        evaluated = [EvaluationSet(spec.data, held_out, num_samples)]
        for data in spec.evaluation.benchmarks:
            questions = evaluated_questions_that_fit(spec, self.agents, data, self.log)
            evaluated.append(EvaluationSet(data, questions, data.num_samples or num_samples))
        self.progress.spool.emit(*(event for each in evaluated for event in each.question_events()))
        self.evaluations.sets = evaluated
        return sets

    def log_sets(self, sets: Sequence[Sequence[Question]]) -> None:
        """Write to the log what each of several training sets is."""
        for data, share, questions in zip(self.spec.training_data, self.spec.training_shares, sets, strict=True):
            if len(sets) > 1:
                what = f"{len(questions)} questions, {share:.1%} of the prompts, verifier {verifier_label(data)}"
                self.log("info", f"training set {data.benchmark}: {what}")

    def save(self) -> None:
        """Write a checkpoint. Error: CheckpointsFail, after three in a row that could not be written."""
        with self.progress.phase("checkpoint", checks_stop=False):
            saved = self.checkpoints.save(self.step, self.evaluations.score, self.team.placement, self.state_dict())
        if saved is not None:
            path = saved.path.relative_to(self.checkpoints.run_dir).as_posix()
            self.progress.spool.emit(events.Checkpoint(step=self.step, path=path, size_bytes=saved.size_bytes))

    def pause(self) -> NoReturn:
        """Save what is not saved and end. Error: Paused, always."""
        self.save_if_between_steps()
        reason = events.PAUSE_REQUESTED
        if self.step and self.checkpoints.step != self.step:
            reason += f"; no checkpoint of step {self.step} could be written, so it resumes from an earlier one"
        raise Paused(reason)

    def save_if_cheap(self) -> None:
        """Save on a stop what is quick to write, and wait for no agent that works for long."""
        if not self.can_save or sum(agent.describe()["num_bytes"] for agent in self.agents) >= CHEAP_CHECKPOINT_BYTES:
            return
        if self.is_idle_within(STOP_PATIENCE_S - self.progress.stop.seconds_since_request):
            self.save_if_between_steps()
        else:
            self.log("info", f"stopped without a checkpoint of step {self.step}: an agent was still at work")

    def is_idle_within(self, seconds: float) -> bool:
        """Whether no agent works, nor samples what a checkpoint stores, at the latest after `seconds`."""
        deadline = time.monotonic() + seconds
        return self.team.placement.has_ended_within(max(0.0, seconds)) and all(
            agent.has_sampled_within(max(0.0, deadline - time.monotonic())) for agent in self.agents
        )

    def save_if_between_steps(self) -> None:
        """Save all agents or none on a stop or pause. A full disk must not turn it into a failure."""
        if self.can_save:
            with suppress(CheckpointsFail):
                self.save()

    @property
    def can_save(self) -> bool:
        """Whether there is something to save that has no checkpoint."""
        return bool(self.agents) and self.step not in (0, self.checkpoints.step) and self.moment != "learning"

    def close(self) -> None:
        """Release the agents' processes and devices, and those of reward functions and judges; log what these cost."""
        self.evaluations.close()
        if self.agents:
            self.team.placement.close()
        for judge in self.evaluations.judges:
            if judge.spent:
                self.log("info", f"{judge.file.label}: {judge.spent:.4g} spent in this attempt, evaluations included")

    def state_dict(self) -> dict[str, Any]:
        """The trainer's own state, beside the agents'."""
        trust = {"trust": self.trust.state_dict()} if self.trust.is_on else {}
        prompts = {"prompts": self.prompts.state_dict()} if self.prompts.has_state else {}
        settled = {"settled": self.resolved, **prompts}
        return {"tracker": self.tracker.state_dict(), **self.progress.state_dict(), **settled, **trust}

    def load_state_dict(self, step: int, state: dict[str, Any]) -> None:
        self.step = step
        self.checkpoints.resume(step, state)
        self.tracker.load_state_dict(state["tracker"])
        self.progress.load_state_dict(state)
        if "trust" in state:
            self.trust.load_state_dict(state["trust"])

    def is_due(self, interval: int) -> bool:
        """Whether something that happens every `interval` steps, and after the last, happens after this one."""
        return self.step == self.spec.training.steps or (interval > 0 and self.step % interval == 0)

    # The log

    def log(self, level: events.Level, message: str, incident: events.Incident | None = None) -> None:
        # An incident during a step belongs to that step; `self.step` counts the completed ones.
        step = self.step + (incident is not None and self.moment != "between steps")
        self.progress.spool.emit(events.Log(level=level, message=message, step=step, incident=incident))


def _mean_rewards(record: StepRecord) -> Iterator[tuple[str, float]]:
    for name, rewards, valid in zip(record.names, record.scores.rewards, record.scores.valid, strict=True):
        yield name, rewards[valid].mean().item() if valid.any() else math.nan
