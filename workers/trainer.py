"""Algorithm 1 of arXiv 2603.02604, top to bottom, for any number of agents: the heart of `python -m workers`.

Agents are asked in text and numbers (placement.py); everything learned here leaves as events (telemetry.py).
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

from safetensors import SafetensorError
from tqdm import tqdm

from workers import events
from workers.algorithms import hacpo
from workers.audit import Audit
from workers.benchmarks import Question, Split, split_questions
from workers.checkpoint import newest_checkpoint, save_checkpoint
from workers.evaluation import Exam, Result, answer_events, evaluation_event, results_of
from workers.fitting import asked_questions_that_fit, questions_that_fit
from workers.memory import device_peak_bytes, resident_bytes
from workers.messages import Generated, RolloutsMissing, UpdateReport
from workers.placement import Agent, LocalPlacement
from workers.plan import batch_of_step, learning_rate
from workers.provenance import versions
from workers.quarantine import Change, Trust
from workers.rewards import Verifier
from workers.scoring import Scorer
from workers.spec import RunSpec
from workers.spec_sections import DataSpec
from workers.step_view import StepView, view_step
from workers.stopping import Paused, StopFlag
from workers.telemetry import StepRecord, step_events
from workers.updates import MAX_FAILURES_IN_A_ROW
from workers.verifiers import label

MAX_FAILED_SAVES = 3
# A checkpoint on the way out must fit into the grace between TERM and KILL.
CHEAP_CHECKPOINT_BYTES = 2_000_000_000


class Diverged(RuntimeError):
    """Three updates in a row had no finite loss or gradient, and there was nothing left to roll back to."""


class CheckpointsFail(RuntimeError):
    """Three checkpoints in a row could not be written."""


class Trainer:
    """One run: its agents, its counters, and the spool it writes to."""

    def __init__(
        self, spec: RunSpec, run_dir: Path, spool: events.SpoolWriter, verifier: Verifier, stop: StopFlag
    ) -> None:
        self.spec, self.run_dir, self.spool, self.stop = spec, run_dir, spool, stop
        self.scorer = self.scorer_with(verifier)
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
        self.exams: list[Exam] = []  # benchmarks that evaluations ask, the run's own first
        self.step = 0  # completed steps
        self.is_in_step = False
        self.is_mid_step = False  # its state is that of no step: nothing may be saved
        self.saved_step: int | None = None
        self.failed_saves = 0  # in a row
        self.score: tuple[int, float] | None = None  # step and mean accuracy of the last evaluation
        self.best: tuple[int, float] | None = None  # of those with a checkpoint
        self.rollouts_generated = 0
        self.tokens_generated = 0
        self.elapsed_before_s = 0.0
        self.started_at = time.monotonic()
        self.phase_s: dict[str, float] = {}  # of the step under way
        self.usual_step_s = 0.0

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
            self.note_best()  # the checkpoint of this step is there: this attempt came from it
            self.report_progress(self.elapsed_before_s / self.step)
        bar = tqdm(total=spec.training.steps, initial=self.step, unit="step", disable=not sys.stderr.isatty())
        with bar, closing(self.audit):
            while self.step < spec.training.steps:
                if self.stop.is_pause_asked:
                    self.pause()
                step_started = time.monotonic()
                self.phase_s = defaultdict(float)
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
                self.report_progress(time.monotonic() - step_started)
                bar.update()
                bar.set_postfix_str(" ".join(f"{name} {value:.2f}" for name, value in _mean_rewards(record)))

    def prepare_questions(self, split: Split | None) -> list[Question]:
        """What is trained on, and in `exams` what evaluations ask. split: None where nothing is trained on."""
        spec, count = self.spec, self.spec.evaluation.num_samples
        train: list[Question] = []
        if split is None:
            held_out = asked_questions_that_fit(spec, self.agents, spec.data, self.log)
        else:
            if split.num_repeated or split.num_overlapping:
                repeated, overlapping = split.num_repeated, split.num_overlapping
                left_out = f"{repeated} repeated questions, {overlapping} training questions held out"
                self.log("info", f"{spec.data.benchmark}: left out {left_out}")
            train, held_out = questions_that_fit(spec, self.agents, split, self.log)
        if self.step == 0:
            self.scorer.check_answers([*train, *held_out])
        self.exams = [Exam(spec.data, held_out, count)]
        for data in spec.evaluation.benchmarks:
            asked = asked_questions_that_fit(spec, self.agents, data, self.log)
            self.exams.append(Exam(data, asked, data.num_samples or count))
        self.spool.emit(*(event for exam in self.exams for event in exam.question_events()))
        return train

    def one_step(self, questions: Sequence[Question]) -> StepRecord:
        """Algorithm 1, one round; the numbers are its lines in design order."""
        spec = self.spec
        self.is_in_step = True
        # 1, 2. The same prompts go to all agents; each samples G rollouts and scores them with its own weights.
        generated: list[Generated] = []
        for agent in self.agents:
            with self.phase("generate"):
                generated.append(self.generate(agent, questions))
        with self.phase("verify"):
            scores = self.scorer.score_step(questions, generated, spec.num_generations)
            audited = self.audit.check(self.step, questions, generated, scores) if self.trust.audits else []
        # 3. Barrier: capabilities, ratios and every learner's advantages, of policies frozen at the start of the step.
        self.stop.check()
        self.is_mid_step = True
        self.tell(self.trust.note_audit(audited))
        self.tracker.update(scores.rewards, scores.valid)
        ratio = self.tracker.ratio()  # (n, n)  ratio[a, b] = omega(a, b)
        view = view_step(spec, self.step, generated, scores, ratio, self.trust)
        is_watched = self.trust.is_due(self.step + 1)
        alignments = self.measure_alignments(view) if is_watched else []
        # Whom the evidence speaks against teaches nothing from this very step on.
        if self.tell([change for each in enumerate(alignments) for change in self.trust.note_alignment(*each)]):
            view = view_step(spec, self.step, generated, scores, ratio, self.trust)
        # 4. Each learner takes its [self block, cross block] in mini-batches, one optimizer step each.
        interval = spec.telemetry.alignment_interval
        is_told = bool(interval and (self.step + 1) % interval == 0 and spec.algorithm.shares_rollouts)
        reports: list[UpdateReport] = []
        for learner, agent in enumerate(self.agents):
            with self.phase("update"):
                rate = learning_rate(spec, learner, self.step)
                measures = is_told and not is_watched
                reports.append(agent.update(view.plans[learner], rate, measures_alignment=measures))
            if is_watched:
                reports[-1].alignment = alignments[learner]
            self.watch_for_divergence(agent.name, reports[-1])
        # 5. The new weights are the next step's policies.
        self.step += 1
        self.is_in_step = self.is_mid_step = False
        responses = [response for found in generated for group in found.responses for response in group]
        self.rollouts_generated += len(responses)
        self.tokens_generated += sum(response.num_tokens for response in responses)
        return StepRecord(
            step=self.step,
            names=[agent.name for agent in self.agents],
            questions=questions,
            generated=generated,
            rewards=scores.rewards,
            valid=scores.valid,
            timeouts=scores.timeouts,
            tracker=self.tracker,
            judged=view.judged,
            plans=view.plans,
            reports=reports,
            quarantined=view.quarantined,
            trusted=view.trusted,
            trust=self.trust if self.trust.is_on else None,
            audited=audited,
            sharing=spec.algorithm.shares_rollouts,
            alpha=spec.algorithm.alpha if spec.algorithm.name == "hacpo" else None,
        )

    def generate(self, agent: Agent, questions: Sequence[Question]) -> Generated:
        """An agent's rollouts, or none where it cannot deliver and the run may go on. Error: RolloutsMissing."""
        try:
            generated = agent.generate(self.step, questions)
        except RolloutsMissing as error:
            algorithm = self.spec.algorithm
            may_go_on = algorithm.on_missing_source == "degrade" and algorithm.shares_rollouts and len(self.agents) > 1
            if not may_go_on:
                raise
            told = f"step {self.step + 1} goes on without the rollouts of {agent.name}: {error}"
            self.log("warning", told, "no rollouts")
            return Generated([[] for _ in questions], (0.0, 0.0), is_missing=True)
        for note in generated.notes:
            self.log("warning", f"{agent.name}: {note}", "out of memory")
        return generated

    def measure_alignments(self, view: StepView) -> list[dict[int, float | None]]:
        """By learner and source, also of those in quarantine."""
        found = []
        for agent, plan, watched in zip(self.agents, view.plans, view.quarantined, strict=True):
            with self.phase("update"):
                found.append(agent.measure_alignment([row for rows in (*plan, watched) for row in rows]))
        return found

    def tell(self, changes: Sequence[Change]) -> bool:
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
        if report.skipped_updates:
            skipped = f"skipped {report.skipped_updates} updates of step {self.step + 1}"
            self.log("warning", f"{name}: {skipped}: loss or gradient not finite", "not finite")
        if report.rolled_back:
            back = "back at the last weights whose gradient was finite"
            self.log("warning", f"{name}: {MAX_FAILURES_IN_A_ROW} updates in a row without one: {back}", "not finite")
        if report.failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            failures = f"{report.failures_in_a_row} updates in a row without a finite loss or gradient"
            raise Diverged(f"diverged at step {self.step + 1}: {name} had {failures}")

    def evaluate(self) -> None:
        """Each agent alone on the run's benchmark; before the first step and after the last on all of them."""
        is_at_an_end = self.step in (0, self.spec.training.steps)
        for exam in self.exams if is_at_an_end else self.exams[:1]:
            with self.scorer_of(exam) as scorer:
                if self.step == 0 and exam is not self.exams[0]:
                    scorer.check_answers(exam.questions)
                found = [self.examine(agent, exam, scorer) for agent in self.agents if exam.questions]
            if found and exam is self.exams[0]:
                self.score = self.step, fmean(event.value for event in found)

    def examine(self, agent: Agent, exam: Exam, scorer: Scorer) -> events.Evaluation:
        """One agent on one benchmark. Its events are told together, so that no page shows half an evaluation.

        A pause is obeyed where more than one block is asked; after it the evaluation repeats itself exactly.
        """
        results: list[Result] = []
        for block in exam.blocks(self.spec.rollout.rollout_batch_size):
            if results and self.stop.is_pause_asked:
                self.pause()
            with self.phase("evaluate"):
                texts = agent.evaluate(self.step, block, exam.num_samples)
                results += results_of(exam, block, texts, scorer)
            if self.spec.is_evaluation_only:
                self.report_evaluation(agent, exam, len(results))
        for note in agent.take_notes():
            self.log("warning", f"{agent.name}: {note}", "out of memory")
        event = evaluation_event(self.step, agent.name, exam, results)
        self.spool.emit(*answer_events(self.step, agent.name, exam, results), event)
        if event.unscorable:
            lost = f"{event.unscorable} of {len(results) * exam.num_samples} answers to {exam.name}"
            self.log("warning", f"{agent.name}: {lost} could not be scored and are left out")
        return event

    @contextmanager
    def scorer_of(self, exam: Exam) -> Iterator[Scorer]:
        """The run's own scorer, or one with the verifier that a further benchmark asks for."""
        if _judge(exam.data) == _judge(self.spec.data):
            yield self.scorer
            return
        with Verifier(**_judge(exam.data), processes=min(4, os.cpu_count() or 1)) as verifier:
            yield self.scorer_with(verifier)

    def scorer_with(self, verifier: Verifier) -> Scorer:
        training = self.spec.training
        return Scorer(verifier, self.stop, lambda text: self.log("warning", text, "verifier"), training.max_unscorable)

    def load(self) -> None:
        """Agents from the spec, or all of the run from its newest checkpoint where this is a later attempt."""
        resumable, problems = newest_checkpoint(self.run_dir) if self.spool.attempt > 1 else (None, [])
        names = [agent.name for agent in self.spec.agents]
        folders = None if resumable is None else [resumable.folders[name] for name in names]
        placement = LocalPlacement(self.spec, folders)
        self.agents: Sequence[Agent] = placement.agents
        if resumable is not None:
            for agent in self.agents:
                agent.load_state(resumable.state_stems[agent.name])
            self.load_state_dict(resumable.trainer)
            self.step = self.saved_step = resumable.step
        self.spool.emit(
            events.Started(
                step=self.step,
                total_steps=self.spec.training.steps,
                agents=names,
                device=placement.device_name,
                versions=versions() | {"verifier": label(self.spec.data.verifier)},
                pid=os.getpid(),
            )
        )
        if self.spool.damage:
            self.log("warning", self.spool.damage, "damaged file")
        for problem in problems:
            self.log("warning", f"checkpoint not used: {problem}", "damaged file")
        for agent in self.agents:
            facts = agent.describe()
            size = f"{facts['num_parameters']:,} parameters, {facts['dtype']}"
            trained = facts["num_trained"]
            is_partly = trained not in (0, facts["num_parameters"])
            by_lora = f"; {trained:,} LoRA parameters are trained" if is_partly else ""
            self.log("info", f"{agent.name}: {facts['architecture']}, {size}{by_lora}")

    def save(self) -> None:
        """A checkpoint of all agents at the end of a step. Error: CheckpointsFail, after three in a row.

        One that cannot be written leaves the earlier ones as they were, and training goes on.
        """
        before, options = self.best, self.spec.checkpoint
        self.note_best()
        best_step = self.best[0] if self.best and options.keep_best else None
        try:
            with self.phase("checkpoint", obeys_stop=False):
                saved = save_checkpoint(
                    self.run_dir, self.step, self.agents, self.state_dict(), options.keep, best_step
                )
        except (OSError, SafetensorError) as error:
            self.failed_saves, self.best = self.failed_saves + 1, before
            kept = "the earlier ones are kept"
            told = f"checkpoint of step {self.step} not written, {kept}: {error} (is the disk full?)"
            self.log("warning", told, "disk")
            if self.failed_saves >= MAX_FAILED_SAVES:
                raise CheckpointsFail(f"disk: {self.failed_saves} checkpoints in a row not written: {error}") from error
            return
        self.saved_step, self.failed_saves = self.step, 0
        path = saved.path.relative_to(self.run_dir).as_posix()
        self.spool.emit(events.Checkpoint(step=self.step, path=path, size_bytes=saved.size_bytes))

    def note_best(self) -> None:
        """Remember the evaluation of this step, where none with a checkpoint was better."""
        if self.score and self.score[0] == self.step and (self.best is None or self.score[1] > self.best[1]):
            self.best = self.score

    def save_last(self) -> None:
        """The checkpoint that all of the run was for: tried again at once. Error: CheckpointsFail."""
        while self.saved_step != self.step:
            self.save()

    def pause(self) -> NoReturn:
        """Save what is not saved and end. Error: Paused, always."""
        self.save_if_between_steps()
        reason = events.PAUSE_ASKED
        if self.step and self.saved_step != self.step:
            reason += f"; no checkpoint of step {self.step} could be written, so it goes on from an earlier one"
        raise Paused(reason)

    def save_if_cheap(self) -> None:
        """On the way out with a grace: only what is quick to write."""
        size = sum(agent.describe()["num_bytes"] for agent in getattr(self, "agents", ()))
        if size < CHEAP_CHECKPOINT_BYTES:
            self.save_if_between_steps()

    def save_if_between_steps(self) -> None:
        """On the way out: all agents or none. A full disk must not turn a stop or a pause into a failure."""
        has_agents = bool(getattr(self, "agents", ()))
        if has_agents and self.step and self.step != self.saved_step and not self.is_mid_step:
            with suppress(CheckpointsFail):
                self.save()

    def state_dict(self) -> dict[str, Any]:
        """The trainer's own state, beside the agents'."""
        return {
            "tracker": self.tracker.state_dict(),
            "best": self.best,
            "rollouts_generated": self.rollouts_generated,
            "tokens_generated": self.tokens_generated,
            "elapsed_s": self.elapsed_s,
            **({"trust": self.trust.state_dict()} if self.trust.is_on else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tracker.load_state_dict(state["tracker"])
        self.best = tuple(state["best"]) if state.get("best") else None
        self.rollouts_generated = state["rollouts_generated"]
        self.tokens_generated = state["tokens_generated"]
        self.elapsed_before_s = state["elapsed_s"]
        if "trust" in state:
            self.trust.load_state_dict(state["trust"])

    @property
    def elapsed_s(self) -> float:
        return self.elapsed_before_s + time.monotonic() - self.started_at

    @contextmanager
    def phase(self, name: str, *, obeys_stop: bool = True) -> Iterator[None]:
        """Time one phase; a stop is obeyed before it begins."""
        if obeys_stop:
            self.stop.check()
        started = time.monotonic()
        yield
        self.phase_s[name] = self.phase_s.get(name, 0.0) + time.monotonic() - started

    def is_due(self, interval: int) -> bool:
        """Whether what happens every `interval` steps, and after the last, happens after this one."""
        return self.step == self.spec.training.steps or (interval > 0 and self.step % interval == 0)

    def report_progress(self, step_s: float) -> None:
        remaining = self.spec.training.steps - self.step
        self.usual_step_s = 0.7 * self.usual_step_s + 0.3 * step_s if self.usual_step_s else step_s
        self.spool.emit(
            events.Progress(
                step=self.step,
                total_steps=self.spec.training.steps,
                elapsed_s=self.elapsed_s,
                eta_s=remaining * self.usual_step_s,
                rollouts_generated=self.rollouts_generated,
                tokens_generated=self.tokens_generated,
                phase_s={name: round(value, 4) for name, value in self.phase_s.items()},
                resident_bytes=resident_bytes(),
                device_peak_bytes=device_peak_bytes(),
            )
        )

    def report_evaluation(self, agent: Agent, exam: Exam, num_answered: int) -> None:
        """How far a run is that only evaluates: samples asked of all that will be."""
        sizes = [len(one.questions) * one.num_samples for one in self.exams]
        place = self.exams.index(exam)
        before = sum(sizes[:place]) * len(self.agents) + sizes[place] * self.agents.index(agent)
        done, total = before + num_answered * exam.num_samples, sum(sizes) * len(self.agents)
        self.spool.emit(
            events.Progress(
                step=0,
                total_steps=0,
                elapsed_s=self.elapsed_s,
                eta_s=self.phase_s["evaluate"] * (total - done) / done,
                rollouts_generated=0,
                tokens_generated=0,
                phase_s={name: round(value, 4) for name, value in self.phase_s.items()},
                resident_bytes=resident_bytes(),
                device_peak_bytes=device_peak_bytes(),
            )
        )

    def log(self, level: events.Level, message: str, incident: events.Incident | None = None) -> None:
        # Trouble amid a step belongs to that step; `self.step` counts those that are done.
        step = self.step + (incident is not None and self.is_in_step)
        self.spool.emit(events.Log(level=level, message=message, step=step, incident=incident))


def _judge(data: DataSpec) -> dict[str, Any]:
    """Which verifier a benchmark needs: the arguments of `Verifier`."""
    return {"kind": data.verifier, "tolerance": data.tolerance}


def _mean_rewards(record: StepRecord) -> Iterator[tuple[str, float]]:
    for name, rewards, valid in zip(record.names, record.rewards, record.valid, strict=True):
        yield name, rewards[valid].mean().item() if valid.any() else math.nan
