"""Evaluations of a generated run: k simulated answers of each agent to each held-out question of three benchmarks.

Which questions an agent finds easy stays the same over the steps, so that questions are solved and lost one by one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tools.generated_runs.world import UNSCORABLE, Exercise, World, exercises
from workers.contract import events
from workers.contract.sample_estimators import Vote
from workers.contract.spec.data import DataSpec
from workers.contract.spec.run import RunSpec
from workers.trainer.evaluation import EvaluationSet, Result, answer_events, evaluation_event

NUM_SAMPLES = 4
NUM_COUNTED = 50  # questions of an evaluation without recorded answers
# The further benchmarks, and how much harder they are in log odds
FURTHER = {"generated, harder": 1.5, "generated, easier": -1.0}
STEADINESS = 0.8  # share of the samples that are the same at every step
OFFSETS = (1, 1, 2, 10)  # of incorrect answers: the first samples agree, so that they win votes


class EvaluationSimulator:
    """The simulated evaluations of one run. num_questions: of each benchmark, with all answers; 0: counts only."""

    def __init__(self, spec: RunSpec, world: World, num_questions: int, seed: str) -> None:
        self.spec, self.world, self.seed = spec, world, seed
        self.has_answers = num_questions > 0
        self.exercises = exercises()[: num_questions or NUM_COUNTED]
        questions = [exercise.question for exercise in self.exercises]
        benchmarks: list[DataSpec] = [spec.data, *spec.evaluation.benchmarks]
        self.sets = [EvaluationSet(data, questions, spec.evaluation.num_samples) for data in benchmarks]

    def question_events(self) -> Iterator[events.Body]:
        for evaluation_set in self.sets if self.has_answers else ():
            yield from evaluation_set.question_events()

    def events(self, step: int) -> Iterator[events.Body]:
        """The events of a step: of all benchmarks before the first step and after the last, else of the run's own."""
        is_at_an_end = step in (0, self.spec.training.steps)
        for evaluation_set in self.sets if is_at_an_end else self.sets[:1]:
            for place, agent in enumerate(self.spec.agents):
                head = f"{self.seed} {evaluation_set.name} {agent.name}"
                always, now = random.Random(head), random.Random(f"{head} {step}")
                harder = FURTHER.get(evaluation_set.name, 0.0)
                results = [self._result(place, exercise, harder, always, now) for exercise in self.exercises]
                if self.has_answers:
                    yield from answer_events(step, agent.name, evaluation_set, results)
                yield evaluation_event(step, agent.name, evaluation_set, results)

    def _result(
        self, agent: int, exercise: Exercise, harder: float, always: random.Random, now: random.Random
    ) -> Result:
        probability = self.world.probability(agent, exercise.subject, exercise.difficulty + harder)
        rewards: list[float | None] = []
        counts: dict[str, Vote] = {}
        first = ""
        for sample in range(self.spec.evaluation.num_samples):
            steady, fresh, is_steady = always.random(), now.random(), now.random() < STEADINESS
            is_correct = (steady if is_steady else fresh) < probability
            number = exercise.number + (0 if is_correct else OFFSETS[sample % len(OFFSETS)])
            first = first or exercise.text(number)
            if now.random() < UNSCORABLE:
                rewards.append(None)
                continue
            rewards.append(float(is_correct))
            before = counts.get(str(number))
            counts[str(number)] = Vote(before.count + 1 if before else 1, is_correct)
        majority = max(counts, key=lambda answer: counts[answer].count, default="")
        return Result(exercise.question, rewards, list(counts.values()), majority, first)
