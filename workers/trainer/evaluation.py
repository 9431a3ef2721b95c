"""Evaluations: each agent alone, k samples of each held-out question, and the events that record them.

The trainer evaluates before the first step, between steps and after the last. Questions go to the agents in blocks:
only verdicts, answers and first responses of a block are kept, so k samples of many questions need little memory.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from types import MappingProxyType
from typing import NoReturn

from workers.agents.interface import AgentInterface, Placement
from workers.agents.messages import FinalAnswer
from workers.contract import events
from workers.contract.advantages import REWARD_MAX
from workers.contract.sample_estimators import Tally, Vote, estimates
from workers.contract.spec.data import DataSpec
from workers.contract.spec.run import RunSpec
from workers.questions.canonical import MAX_SLICES, OTHER_SLICES
from workers.questions.dataset import Question
from workers.trainer.progress import LogFunction, ProgressReporter
from workers.trainer.rewards import (
    AnyVerifier,
    Judges,
    RewardTerms,
    open_verifier,
    verifier_label,
    verifier_settings,
)
from workers.trainer.scoring import Scorer
from workers.verifiers.judges.judge_verifier import JudgeVerifier
from workers.verifiers.scoring.voting import vote


@dataclass(frozen=True)
class EvaluationSet:
    """The questions of one benchmark that a run evaluates. num_samples: k."""

    data: DataSpec
    questions: Sequence[Question]
    num_samples: int

    @property
    def name(self) -> str:
        return self.data.benchmark

    def blocks(self, most_sequences: int) -> Iterator[Sequence[Question]]:
        """The questions in their order, in blocks of at most `most_sequences` samples (at least one question)."""
        size = max(1, most_sequences // self.num_samples)
        for start in range(0, len(self.questions), size):
            yield self.questions[start : start + size]

    def question_events(self) -> Iterator[events.Questions]:
        """The questions as events, for the pages that show single answers."""
        for first in range(0, len(self.questions), events.ANSWERS_AT_ONCE):
            some = self.questions[first : first + events.ANSWERS_AT_ONCE]
            yield events.Questions(
                benchmark=self.name,
                first=first,
                ids=[question.id for question in some],
                questions=[question.question[: events.TEXT_CHARACTERS] for question in some],
                answers=[question.answer[: events.TEXT_CHARACTERS] for question in some],
                subjects=[question.subject for question in some],
                difficulties=[question.difficulty for question in some],
            )


@dataclass(frozen=True)
class Result:
    """The verdicts of one agent's samples of one question. response: the first one."""

    question: Question
    rewards: Sequence[float | None]
    votes: Sequence[Vote]
    majority: str
    response: str

    @property
    def num_scored(self) -> int:
        return sum(reward is not None for reward in self.rewards)

    @property
    def num_correct(self) -> int:
        return sum(reward is not None and reward >= REWARD_MAX for reward in self.rewards)

    @property
    def credit(self) -> float:
        """The sum of the rewards; a whole number where no answer has partial credit."""
        total = math.fsum(reward for reward in self.rewards if reward is not None)
        return int(total) if total.is_integer() else total

    @property
    def marks(self) -> str:
        """One character for each sample, as events.Answers has them."""
        return "".join(
            events.UNSCORABLE
            if reward is None
            else events.CORRECT
            if reward >= REWARD_MAX
            else events.PARTIAL
            if reward > 0
            else events.INCORRECT
            for reward in self.rewards
        )


def questions_digest(questions: Sequence[Question]) -> str:
    """SHA-256 over ids, questions and answers in their order: scores on other questions are other scores."""
    sha256 = hashlib.sha256()
    for question in questions:
        sha256.update(repr((question.id, question.question, question.answer)).encode())
    return sha256.hexdigest()


def results_of(
    benchmark: EvaluationSet, block: Sequence[Question], answers: Sequence[FinalAnswer], scorer: Scorer
) -> list[Result]:
    """Score a block's answers, num_samples of each question in order. Errors: VerifierFails, Stopped."""
    count, texts = benchmark.num_samples, [answer.text for answer in answers]
    # Where the environment gave a reward, nothing is verified.
    paid = [scorer.paid(answer) for answer in answers]
    pairs = [(text, block[place // count]) for place, text in enumerate(texts) if paid[place] is None]
    verdicts = iter(scorer.score(pairs))
    rewards = [next(verdicts).reward if reward is None else reward for reward in paid]
    results = []
    for place, question in enumerate(block):
        own = slice(place * count, (place + 1) * count)
        data = benchmark.data
        votes, majority = vote(data.verifier, texts[own], rewards[own], data.extraction)
        response = texts[own][0][: events.TEXT_CHARACTERS]
        results.append(Result(question, rewards[own], votes, majority, response))
    return results


def answer_events(
    step: int, agent: str, benchmark: EvaluationSet, results: Sequence[Result]
) -> Iterator[events.Answers]:
    """The agent's answers as events."""
    for first in range(0, len(results), events.ANSWERS_AT_ONCE):
        some = results[first : first + events.ANSWERS_AT_ONCE]
        yield events.Answers(
            step=step,
            agent=agent,
            benchmark=benchmark.name,
            first=first,
            marks=[result.marks for result in some],
            majority=[result.majority for result in some],
            responses=[result.response for result in some],
        )


def slices_of(results: Sequence[Result]) -> dict[str, tuple[float, int]]:
    """(sum of rewards, scored) by subject and difficulty.

    Of each the first MAX_SLICES names to appear, the rest together.
    """
    slices: dict[str, tuple[float, int]] = {}
    for prefix in ("", "difficulty: "):
        named: set[str] = set()
        for result in results:
            value = result.question.difficulty if prefix else result.question.subject
            if not value:
                continue
            if len(named) < MAX_SLICES:
                named.add(value)
            name = prefix + (value if value in named else OTHER_SLICES)
            if result.num_scored:
                credit, scored = slices.get(name, (0, 0))
                slices[name] = (credit + result.credit, scored + result.num_scored)
    return slices


def evaluation_event(step: int, agent: str, benchmark: EvaluationSet, results: Sequence[Result]) -> events.Evaluation:
    """The estimates over the samples that could be scored, and slices by subject and difficulty."""
    scored = sum(result.num_scored for result in results)
    values = estimates([Tally(r.num_scored, r.num_correct, r.votes, r.credit) for r in results], benchmark.num_samples)
    return events.Evaluation(
        step=step,
        agent=agent,
        benchmark=benchmark.name,
        metric="accuracy",
        value=values.get(f"avg@{benchmark.num_samples}", float("nan")),
        correct=sum(result.num_correct for result in results),
        asked=scored,
        slices=slices_of(results),
        num_samples=benchmark.num_samples,
        unscorable=len(results) * benchmark.num_samples - scored,
        estimates=values,
        questions=questions_digest([result.question for result in results]),
        verifier=verifier_label(benchmark.data),
    )


class EvaluationRunner:
    """The run's evaluations. sets: by benchmark, the run's own first.  score: step and mean accuracy of the last."""

    def __init__(
        self,
        spec: RunSpec,
        verifier: AnyVerifier,
        progress: ProgressReporter,
        log: LogFunction,
        pause: Callable[[], NoReturn],
        judges: Judges,
        set_verifiers: Mapping[str, AnyVerifier] | None = None,
    ) -> None:
        self.spec, self.progress, self.log, self.pause = spec, progress, log, pause
        self.judges, self.terms = judges, RewardTerms(spec, judges)
        # Of the run's own benchmark; rollouts use it, too.
        self.scorer = self._scorer_with(verifier, self.terms, set_verifiers or {})
        self.sets: list[EvaluationSet] = []
        self.score: tuple[int, float] | None = None
        self._answered = 0  # samples of the present evaluation

    def close(self) -> None:
        """End the processes of reward functions and judges; the run's own verifier is the caller's."""
        self.terms.close()
        for verifier in {id(one): one for one in self.scorer.set_verifiers.values()}.values():  # sets may share one
            if not isinstance(verifier, JudgeVerifier):
                verifier.close()
        self.judges.close()

    def evaluate(self, step: int, placement: Placement) -> None:
        """Each agent alone on the run's benchmark; before the first step and after the last on all of them."""
        is_at_an_end = step in (0, self.spec.training.steps)
        self._answered = 0
        for benchmark in self.sets if is_at_an_end else self.sets[:1]:
            with self._scorer_of(benchmark) as scorer:
                if step == 0 and benchmark is not self.sets[0]:
                    scorer.check_answers(benchmark.questions)
                # Where agents take turns, one ends before the next begins: a pause between them loses nothing.
                agents = placement.agents
                groups = [agents] if placement.is_parallel else [[agent] for agent in agents]
                results = [
                    event
                    for group in groups
                    if benchmark.questions
                    for event in self._evaluate_agents(step, benchmark, scorer, placement, group)
                ]
            if results and benchmark is self.sets[0]:
                self.score = step, fmean(event.value for event in results)

    def _evaluate_agents(
        self,
        step: int,
        benchmark: EvaluationSet,
        scorer: Scorer,
        placement: Placement,
        agents: Sequence[AgentInterface],
    ) -> list[events.Evaluation]:
        """Some agents on one benchmark, a block of questions at a time.

        The run can stop or pause between blocks; the evaluation then repeats itself exactly.
        """
        results: list[list[Result]] = [[] for _ in agents]
        for block in benchmark.blocks(self.spec.rollout.rollout_batch_size):
            if results[0] and self.progress.stop.is_pause_requested:
                self.pause()
            self.progress.stop.check()
            pending = placement.begin([partial(agent.evaluate, step, block, benchmark.num_samples) for agent in agents])
            for own, answer in zip(results, pending, strict=True):
                with self.progress.phase("evaluate"):
                    own += results_of(benchmark, block, answer(), scorer)
                self._answered += len(block) * benchmark.num_samples
                if self.spec.is_evaluation_only:
                    total = sum(len(one.questions) * one.num_samples for one in self.sets)
                    self.progress.record_evaluation(self._answered, total * len(placement.agents))
        return [self._record(step, agent, benchmark, own) for agent, own in zip(agents, results, strict=True)]

    def _record(
        self, step: int, agent: AgentInterface, benchmark: EvaluationSet, results: list[Result]
    ) -> events.Evaluation:
        """Emit an agent's events together, so that no page shows half an evaluation."""
        for note in agent.take_notes():
            self.log("warning", f"{agent.name}: {note}", "out of memory")
        event = evaluation_event(step, agent.name, benchmark, results)
        self.progress.spool.emit(*answer_events(step, agent.name, benchmark, results), event)
        if event.unscorable:
            lost = f"{event.unscorable} of {len(results) * benchmark.num_samples} answers to {benchmark.name}"
            self.log("warning", f"{agent.name}: {lost} could not be scored and are left out")
        return event

    @contextmanager
    def _scorer_of(self, benchmark: EvaluationSet) -> Iterator[Scorer]:
        """The run's own scorer, or one with the verifier of another benchmark."""
        if verifier_settings(benchmark.data) == verifier_settings(self.spec.data):
            yield self.scorer
            return
        verifier = open_verifier(benchmark.data, self.spec.rewards, self.judges)
        with nullcontext(verifier) if isinstance(verifier, JudgeVerifier) else verifier:
            yield self._scorer_with(verifier)

    def _scorer_with(
        self,
        verifier: AnyVerifier,
        terms: RewardTerms | None = None,
        set_verifiers: Mapping[str, AnyVerifier] = MappingProxyType({}),
    ) -> Scorer:
        report = partial(self.log, "warning", incident="verifier")
        has_environment = self.spec.rollout.environment != "none"
        share = self.spec.training.max_unscorable
        return Scorer(verifier, self.progress.stop, report, share, terms, has_environment, set_verifiers)
