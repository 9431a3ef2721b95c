"""An evaluation: each agent alone, k samples of each held-out question, and the events that tell of it.

A station before the first step, between steps and after the last. Questions are asked a block at a time: of a block's
texts only verdicts, answers and first responses are kept, so that k samples of many questions need little memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.contract import events
from workers.contract.estimators import Tally, Vote, estimates
from workers.contract.spec.data import DataSpec
from workers.contract.verifier_kinds import label
from workers.questions.canonical import MAX_SLICES, OTHER_SLICES
from workers.questions.dataset import Question
from workers.trainer.scoring import Scorer
from workers.verifiers.service import REWARD_MAX
from workers.verifiers.voting import vote


@dataclass(frozen=True)
class Exam:
    """One benchmark as a run asks it. num_samples: k."""

    data: DataSpec
    questions: Sequence[Question]
    num_samples: int

    @property
    def name(self) -> str:
        return self.data.benchmark

    def blocks(self, most_sequences: int) -> Iterator[Sequence[Question]]:
        """The questions in their order, in blocks of at most so many samples (at least one question)."""
        size = max(1, most_sequences // self.num_samples)
        for start in range(0, len(self.questions), size):
            yield self.questions[start : start + size]

    def question_events(self) -> Iterator[events.Questions]:
        """What is asked, for the pages that show single answers."""
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
    """What one agent's samples of one question came to. response: the first one."""

    question: Question
    rewards: Sequence[float | None]
    votes: Sequence[Vote]
    majority: str
    response: str

    @property
    def num_scored(self) -> int:
        return sum(reward is not None for reward in self.rewards)

    @property
    def num_right(self) -> int:
        return sum(reward is not None and reward >= REWARD_MAX for reward in self.rewards)

    @property
    def marks(self) -> str:
        return "".join(
            events.UNSCORABLE if reward is None else events.RIGHT if reward >= REWARD_MAX else events.WRONG
            for reward in self.rewards
        )


def digest(questions: Sequence[Question]) -> str:
    """SHA-256 over ids, questions and answers in their order: scores on other questions are other scores."""
    found = hashlib.sha256()
    for question in questions:
        found.update(repr((question.id, question.question, question.answer)).encode())
    return found.hexdigest()


def results_of(exam: Exam, block: Sequence[Question], texts: Sequence[str], scorer: Scorer) -> list[Result]:
    """Score a block's samples. texts: num_samples of each question, one question after the other.

    Errors: VerifierFails, Stopped.
    """
    count = exam.num_samples
    pairs = [(text, block[place // count].answer) for place, text in enumerate(texts)]
    rewards = [verdict.reward for verdict in scorer.score(pairs)]
    found = []
    for place, question in enumerate(block):
        own = slice(place * count, (place + 1) * count)
        votes, majority = vote(exam.data.verifier, texts[own], rewards[own])
        response = texts[own][0][: events.TEXT_CHARACTERS]
        found.append(Result(question, rewards[own], votes, majority, response))
    return found


def answer_events(step: int, agent: str, exam: Exam, results: Sequence[Result]) -> Iterator[events.Answers]:
    """What the agent answered to each question."""
    for first in range(0, len(results), events.ANSWERS_AT_ONCE):
        some = results[first : first + events.ANSWERS_AT_ONCE]
        yield events.Answers(
            step=step,
            agent=agent,
            benchmark=exam.name,
            first=first,
            marks=[result.marks for result in some],
            majority=[result.majority for result in some],
            responses=[result.response for result in some],
        )


def slices_of(results: Sequence[Result]) -> dict[str, tuple[int, int]]:
    """(right, scored) by subject and by difficulty; of each the first MAX_SLICES by name, the rest together."""
    slices: dict[str, tuple[int, int]] = {}
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
                right, scored = slices.get(name, (0, 0))
                slices[name] = (right + result.num_right, scored + result.num_scored)
    return slices


def evaluation_event(step: int, agent: str, exam: Exam, results: Sequence[Result]) -> events.Evaluation:
    """The estimates over the samples that could be scored, and slices by subject and difficulty."""
    scored = sum(result.num_scored for result in results)
    found = estimates([Tally(r.num_scored, r.num_right, r.votes) for r in results], exam.num_samples)
    return events.Evaluation(
        step=step,
        agent=agent,
        benchmark=exam.name,
        metric="accuracy",
        value=found.get(f"avg@{exam.num_samples}", float("nan")),
        correct=sum(result.num_right for result in results),
        asked=scored,
        slices=slices_of(results),
        num_samples=exam.num_samples,
        unscorable=len(results) * exam.num_samples - scored,
        estimates=found,
        questions=digest([result.question for result in results]),
        verifier=label(exam.data.verifier),
    )
