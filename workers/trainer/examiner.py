"""Holds the evaluations of a run (evaluation.py): asks the agents, has the answers scored, tells the results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import fmean
from typing import Any, NoReturn, Protocol

from workers.agents.interface import Agent, Placement
from workers.contract import events
from workers.contract.spec.data import DataSpec
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.trainer.evaluation import Exam, Result, answer_events, evaluation_event, results_of
from workers.trainer.progress import Progress
from workers.trainer.scoring import Scorer
from workers.trainer.stop_signals import StopFlag
from workers.verifiers.service import Verifier


class Host(Protocol):
    """What an examiner needs of the trainer."""

    spec: RunSpec
    spool: SpoolWriter
    stop: StopFlag
    progress: Progress

    def log(self, level: events.Level, message: str, incident: events.Incident | None = None) -> None: ...
    def pause(self) -> NoReturn: ...


class Examiner:
    """The run's evaluations. exams: its benchmarks, the run's own first. score: step and mean accuracy of the last."""

    def __init__(self, trainer: Host, verifier: Verifier) -> None:
        self.trainer, self.spec = trainer, trainer.spec
        self.scorer = self._scorer_with(verifier)  # of the run's own benchmark, also of its rollouts
        self.exams: list[Exam] = []
        self.score: tuple[int, float] | None = None
        self._answered = 0  # samples of the evaluation under way

    def evaluate(self, step: int, placement: Placement) -> None:
        """Each agent alone on the run's benchmark; before the first step and after the last on all of them."""
        is_at_an_end = step in (0, self.spec.training.steps)
        self._answered = 0
        for exam in self.exams if is_at_an_end else self.exams[:1]:
            with self._scorer_of(exam) as scorer:
                if step == 0 and exam is not self.exams[0]:
                    scorer.check_answers(exam.questions)
                # Where agents take turns, one is through before the next begins: a pause between them loses nothing.
                agents = placement.agents
                groups = [agents] if placement.is_parallel else [[agent] for agent in agents]
                found = [
                    event
                    for group in groups
                    if exam.questions
                    for event in self._examine(step, exam, scorer, placement, group)
                ]
            if found and exam is self.exams[0]:
                self.score = step, fmean(event.value for event in found)

    def _examine(
        self, step: int, exam: Exam, scorer: Scorer, placement: Placement, agents: Sequence[Agent]
    ) -> list[events.Evaluation]:
        """Some agents on one benchmark, a block of questions at a time.

        A pause is obeyed where more than one block is asked; after it the evaluation repeats itself exactly.
        """
        results: list[list[Result]] = [[] for _ in agents]
        for block in exam.blocks(self.spec.rollout.rollout_batch_size):
            if results[0] and self.trainer.stop.is_pause_asked:
                self.trainer.pause()
            asked = placement.begin([partial(agent.evaluate, step, block, exam.num_samples) for agent in agents])
            for own, answer in zip(results, asked, strict=True):
                with self.trainer.progress.phase("evaluate"):
                    own += results_of(exam, block, answer(), scorer)
                self._answered += len(block) * exam.num_samples
                if self.spec.is_evaluation_only:
                    total = sum(len(one.questions) * one.num_samples for one in self.exams)
                    self.trainer.progress.tell_evaluation(self._answered, total * len(placement.agents))
        return [self._tell(step, agent, exam, own) for agent, own in zip(agents, results, strict=True)]

    def _tell(self, step: int, agent: Agent, exam: Exam, results: list[Result]) -> events.Evaluation:
        """An agent's events are told together, so that no page shows half an evaluation."""
        for note in agent.take_notes():
            self.trainer.log("warning", f"{agent.name}: {note}", "out of memory")
        event = evaluation_event(step, agent.name, exam, results)
        self.trainer.spool.emit(*answer_events(step, agent.name, exam, results), event)
        if event.unscorable:
            lost = f"{event.unscorable} of {len(results) * exam.num_samples} answers to {exam.name}"
            self.trainer.log("warning", f"{agent.name}: {lost} could not be scored and are left out")
        return event

    @contextmanager
    def _scorer_of(self, exam: Exam) -> Iterator[Scorer]:
        """The run's own scorer, or one with the verifier that a further benchmark asks for."""
        if _judge(exam.data) == _judge(self.spec.data):
            yield self.scorer
            return
        with Verifier(**_judge(exam.data), processes=min(4, os.cpu_count() or 1)) as verifier:
            yield self._scorer_with(verifier)

    def _scorer_with(self, verifier: Verifier) -> Scorer:
        told = partial(self.trainer.log, "warning", incident="verifier")
        return Scorer(verifier, self.trainer.stop, told, self.spec.training.max_unscorable)


def _judge(data: DataSpec) -> dict[str, Any]:
    """Which verifier a benchmark needs: the arguments of `Verifier`."""
    return {"kind": data.verifier, "tolerance": data.tolerance}
