"""What is made up of evaluations: k answers of each agent to each held-out question of three benchmarks.

The estimates are computed from these answers by the trainer's own formulas (workers.contract.estimators). How well an
agent answers follows its curves in generated_world.py; which questions it finds easy stays the same over the steps, so
that questions are solved and lost one by one.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

from tools.generated_runs.world import SUBJECTS, UNSCORABLE, Question, World, questions
from workers.contract.estimators import Tally, Vote, estimates
from workers.contract.events import ANSWERS_AT_ONCE, RIGHT, WRONG
from workers.contract.events import UNSCORABLE as NO_VERDICT
from workers.contract.spec.run import RunSpec

Record = dict[str, Any]
NUM_SAMPLES = 4
TEMPERATURE = 0.8
# Further benchmarks: name -> how much harder they are, taken from the log odds.
FURTHER = {"generated, harder": 1.5, "generated, easier": -1.0}
STEADINESS = 0.8  # of the samples so many are as they were at the step before
LEVELS = ("1 easy", "2 medium", "3 hard")


def section(num_questions: int, not_trained: str) -> dict[str, Any]:
    """What RunSpec's evaluation says of it."""
    if not num_questions:
        return {}
    asked = [{"benchmark": name, "train_path": not_trained} for name in FURTHER]
    return {"num_samples": NUM_SAMPLES, "temperature": TEMPERATURE, "benchmarks": asked}


class Examiner:
    """Makes up the answers of one run. num_questions: of each benchmark."""

    def __init__(self, spec: RunSpec, world: World, num_questions: int, seed: str) -> None:
        self.spec, self.world, self.seed = spec, world, seed
        self.questions = questions()[:num_questions]
        self.harder = {spec.data.benchmark: 0.0} | FURTHER

    def question_records(self) -> Iterator[Record]:
        """What is asked, of each benchmark."""
        for benchmark in self.harder:
            for first in range(0, len(self.questions), ANSWERS_AT_ONCE):
                some = self.questions[first : first + ANSWERS_AT_ONCE]
                yield {
                    "type": "questions",
                    "benchmark": benchmark,
                    "first": first,
                    "ids": [question.id for question in some],
                    "questions": [question.text for question in some],
                    "answers": [str(question.answer) for question in some],
                    "subjects": [SUBJECTS[question.subject] for question in some],
                    "difficulties": [_level(question) for question in some],
                }

    def records(self, step: int) -> Iterator[Record]:
        """The events of an evaluation: before the first step and after the last of all benchmarks."""
        is_at_an_end = step in (0, self.spec.training.steps)
        for benchmark in self.harder if is_at_an_end else [self.spec.data.benchmark]:
            for place, agent in enumerate(self.spec.agents):
                yield from self._of_agent(step, benchmark, place, agent.name)

    def _of_agent(self, step: int, benchmark: str, place: int, name: str) -> Iterator[Record]:
        always = random.Random(f"{self.seed} {benchmark} {name}")
        now = random.Random(f"{self.seed} {benchmark} {name} {step}")
        marks, spoken, responses, tallies = [], [], [], []
        for question in self.questions:
            odds = self.world.chance_of(place, question.subject, question.difficulty + self.harder[benchmark])
            letters = "".join(_mark(odds, always, now) for _ in range(NUM_SAMPLES))
            given = [_given(question, letter, number) for number, letter in enumerate(letters)]
            votes = _votes(letters, given)
            marks.append(letters)
            spoken.append(max(votes, key=lambda answer: votes[answer].count, default=""))
            responses.append(f"{question.text}{given[0]}, so \\boxed{{{given[0]}}}")
            scored = NUM_SAMPLES - letters.count(NO_VERDICT)
            tallies.append(Tally(scored, letters.count(RIGHT), [*votes.values()]))
        head = {"step": step, "agent": name, "benchmark": benchmark}
        for first in range(0, len(marks), ANSWERS_AT_ONCE):
            piece = slice(first, first + ANSWERS_AT_ONCE)
            lists = {"marks": marks[piece], "majority": spoken[piece], "responses": responses[piece]}
            yield {"type": "answers", **head, "first": first, **lists}
        yield {"type": "evaluation", **head, **self._evaluation(benchmark, tallies)}

    def _evaluation(self, benchmark: str, tallies: list[Tally]) -> Record:
        """As workers.trainer.evaluation tells it."""
        found = estimates(tallies, NUM_SAMPLES)
        slices: dict[str, tuple[int, int]] = {}
        for question, tally in zip(self.questions, tallies, strict=True):
            for name in (SUBJECTS[question.subject], f"difficulty: {_level(question)}"):
                right, scored = slices.get(name, (0, 0))
                slices[name] = (right + tally.num_right, scored + tally.num_scored)
        scored = sum(tally.num_scored for tally in tallies)
        asked = repr([(question.id, question.text, question.answer) for question in self.questions])
        return {
            "metric": "accuracy",
            "value": found[f"avg@{NUM_SAMPLES}"],
            "correct": sum(tally.num_right for tally in tallies),
            "asked": scored,
            "slices": slices,
            "num_samples": NUM_SAMPLES,
            "unscorable": len(tallies) * NUM_SAMPLES - scored,
            "estimates": found,
            "questions": hashlib.sha256(asked.encode()).hexdigest(),
            "verifier": "generated/1",
        }


def _level(question: Question) -> str:
    return LEVELS[(question.difficulty > -0.3) + (question.difficulty > 0.3)]


def _mark(odds: float, always: random.Random, now: random.Random) -> str:
    """One sample: mostly with the luck that it has at every step."""
    steady, other = always.random(), now.random()
    if now.random() < UNSCORABLE:
        return NO_VERDICT
    return RIGHT if (steady if now.random() < STEADINESS else other) < odds else WRONG


def _given(question: Question, letter: str, number: int) -> str:
    """Wrong answers of the first samples are alike, so that votes come together."""
    return str(question.answer if letter == RIGHT else question.answer + (1, 1, 2, 10)[number % 4])


def _votes(letters: str, given: list[str]) -> dict[str, Vote]:
    found: dict[str, Vote] = {}
    for letter, answer in zip(letters, given, strict=True):
        if letter != NO_VERDICT:
            found[answer] = Vote(found[answer].count + 1 if answer in found else 1, letter == RIGHT)
    return found
